package spec

import (
	"fmt"
	"net/netip"
)

// NIC is an additional network device of a machine.
type NIC struct { // digests in states contain the names of its fields
	// The Proxmox bridge: vmbr1.
	Bridge string `pulumi:"bridge"`
	// The VLAN tag that Proxmox sets. Default: 0, untagged.
	VLAN int `pulumi:"vlan,optional"`
	// The MTU in bytes. Default: 0, the bridge's.
	MTU int `pulumi:"mtu,optional"`
	// The MAC address.
	MAC string `pulumi:"mac"`
	// The address with its prefix length: 10.1.0.10/24. Default: none, the device uses DHCP.
	Address netip.Prefix `pulumi:"address,optional" provider:"type=go@1:netip:text"`
	// Give a Talos machine's device no address at all, for VLANs alone or for a bridge that a patch makes. Default: false.
	NoAddress bool `json:",omitempty" pulumi:"noAddress,optional"`
	// The name of the bond of a Talos machine that the device is in. Default: none.
	Bond string `json:",omitempty" pulumi:"bond,optional"`
	// The metric of routes that DHCP brings. Default: 0, Talos' own.
	RouteMetric int `json:",omitempty" pulumi:"routeMetric,optional"`
	// Routes of a Talos machine over the device. Default: none.
	Routes []Route `json:",omitempty" pulumi:"routes,optional"`
	// VLANs that a Talos machine tags on the device. Default: none.
	VLANs []VLAN `json:",omitempty" pulumi:"vlans,optional"`
}

// HasAddress reports whether the machine has an address on the device itself: not in a bond, on a VLAN or on a bridge
// of its own.
func (n NIC) HasAddress() bool { return n.Bond == "" && !n.NoAddress }

// Bond is a bond of additional network devices.
type Bond struct {
	// The name of the bond in the machine: bond0.
	Name string `pulumi:"name"`
	// How the devices are used, as Linux names it: active-backup.
	Mode string `pulumi:"mode"`
	// How often the state of the devices is checked, in milliseconds.
	MIIMon int `pulumi:"miimon"`
	// What chooses the device for a packet: layer2, layer2+3, layer3+4. Default: Linux' own.
	XmitHashPolicy string `json:",omitempty" pulumi:"xmitHashPolicy,optional"`
	// How often the switch is asked to send LACP packets, with the mode 802.3ad: slow, fast. Default: Linux' own.
	LACPRate string `json:",omitempty" pulumi:"lacpRate,optional"`
	// The MTU in bytes. Default: 0, Linux' own.
	MTU int `json:",omitempty" pulumi:"mtu,optional"`
	// The address with its prefix length: 10.1.0.10/24. Default: none, the bond uses DHCP.
	Address netip.Prefix `json:",omitzero" pulumi:"address,optional" provider:"type=go@1:netip:text"`
	// Give the bond no address at all. Default: false.
	NoAddress bool `json:",omitempty" pulumi:"noAddress,optional"`
	// The metric of routes that DHCP brings. Default: 0, Talos' own.
	RouteMetric int `json:",omitempty" pulumi:"routeMetric,optional"`
	// Routes over the bond. Default: none.
	Routes []Route `json:",omitempty" pulumi:"routes,optional"`
	// VLANs that the machine tags on the bond. Default: none.
	VLANs []VLAN `json:",omitempty" pulumi:"vlans,optional"`
}

// VLAN is a VLAN that a machine tags itself.
type VLAN struct {
	// The tag, from 1 to 4094.
	ID int `pulumi:"id"`
	// The MTU in bytes. Default: 0, that of the device or bond.
	MTU int `json:",omitempty" pulumi:"mtu,optional"`
	// The address with its prefix length: 10.1.0.10/24. Default: none, the VLAN uses DHCP.
	Address netip.Prefix `json:",omitzero" pulumi:"address,optional" provider:"type=go@1:netip:text"`
	// Give the VLAN no address at all. Default: false.
	NoAddress bool `json:",omitempty" pulumi:"noAddress,optional"`
	// The metric of routes that DHCP brings. Default: 0, Talos' own.
	RouteMetric int `json:",omitempty" pulumi:"routeMetric,optional"`
	// Routes over the VLAN. Default: none.
	Routes []Route `json:",omitempty" pulumi:"routes,optional"`
}

// Route is a route of a machine.
type Route struct {
	// The network that it leads to: 10.50.0.0/16.
	Destination netip.Prefix `pulumi:"destination" provider:"type=go@1:netip:text"`
	// The router's address.
	Gateway netip.Addr `pulumi:"gateway" provider:"type=go@1:netip:text"`
	// The metric. Default: 0, Talos' own.
	Metric int `json:",omitempty" pulumi:"metric,optional"`
}

// StaticHost are names that machines resolve without DNS.
type StaticHost struct {
	// The address.
	Address netip.Addr `pulumi:"address" provider:"type=go@1:netip:text"`
	// The names.
	Names []string `pulumi:"names"`
}

// LinkAddress is a static address of a machine beside that of its first network device.
type LinkAddress struct {
	// Path is that of the device, bond or VLAN in the configuration: clusters[0].workers[0].bonds[0].vlans[1].
	Path    string
	Address netip.Prefix
	// Bridge and VLAN are the network on the hosts in which others see it.
	Bridge string
	VLAN   int
}

// LinkAddresses returns the static addresses of the machine's additional devices, bonds and VLANs; first is the network
// of its first device.
func (m VM) LinkAddresses(first Network) (list []LinkAddress) {
	add := func(path, bridge string, tag int, address netip.Prefix, vlans []VLAN) {
		if address.IsValid() {
			list = append(list, LinkAddress{path, address, bridge, tag})
		}

		for i, vlan := range vlans {
			if vlan.Address.IsValid() {
				list = append(list, LinkAddress{fmt.Sprintf("%s.vlans[%d]", path, i), vlan.Address, bridge, vlan.ID})
			}
		}
	}

	add(m.Path, first.Bridge, first.VLAN, netip.Prefix{}, m.VLANs)

	for i, nic := range m.ExtraNICs {
		add(fmt.Sprintf("%s.extraNICs[%d]", m.Path, i), nic.Bridge, nic.VLAN, nic.Address, nic.VLANs)
	}

	for i, bond := range m.Bonds {
		for _, nic := range m.ExtraNICs {
			if nic.Bond == bond.Name { // the others are in the same network
				add(fmt.Sprintf("%s.bonds[%d]", m.Path, i), nic.Bridge, nic.VLAN, bond.Address, bond.VLANs)

				break
			}
		}
	}

	return list
}
