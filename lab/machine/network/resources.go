package network

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"

	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/machine/resources"
)

// virtioNetwork is the PCI id of a virtio network card.
const virtioNetwork = "1AF4:1000"

func (l *Link) busPath() string {
	if l.parent != "" {
		return ""
	}

	return fmt.Sprintf("0000:06:%02x.0", l.index+16)
}

func family(a netip.Addr) nethelpers.Family {
	if a.Is4() {
		return nethelpers.FamilyInet4
	}

	return nethelpers.FamilyInet6
}

// status is the link as a resource.
func (l *Link) status() *network.LinkStatus {
	return resources.Filled(network.NewLinkStatus(network.NamespaceName, l.Name), func(r *network.LinkStatus) {
		s := r.TypedSpec()

		mac, err := net.ParseMAC(l.mac)
		if err == nil {
			s.HardwareAddr, s.PermanentAddr = nethelpers.HardwareAddr(mac), nethelpers.HardwareAddr(mac)
		}

		s.Alias, s.Index, s.MTU, s.Driver, s.BusPath = l.alias, uint32(l.index), uint32(l.mtu), l.driver, l.busPath()
		s.Type, s.OperationalState, s.LinkState = nethelpers.LinkEther, nethelpers.OperStateUp, true
		s.Flags = nethelpers.LinkFlags(
			nethelpers.LinkUp | nethelpers.LinkBroadcast | nethelpers.LinkRunning | nethelpers.LinkMulticast,
		)

		if l.index == 1 {
			s.Type, s.Flags, s.OperationalState = nethelpers.LinkLoopbck, nethelpers.LinkFlags(
				nethelpers.LinkUp|nethelpers.LinkLoopback|nethelpers.LinkRunning,
			), nethelpers.OperStateUnknown

			return
		}

		if l.parent != "" {
			s.Kind, s.VLAN.VID = network.LinkKindVLAN, uint16(l.vlan)
		} else {
			s.PCIID, s.AltNames = virtioNetwork, []string{l.altName()}
		}
	})
}

// Resources are the network of a machine with a host name that holds virtual addresses.
func (n *Plan) Resources(hostname string, held []netip.Addr) []resource.Resource {
	loopback := &Link{Name: "lo", index: 1, mac: "00:00:00:00:00:00", mtu: 65536}
	list := []resource.Resource{loopback.status(), addressStatus(loopback, netip.MustParsePrefix("127.0.0.1/8"))}

	for _, l := range n.Links {
		list = append(list, l.status())

		if l.parent == "" && l.index == 2 {
			list = append(list, resources.Filled(network.NewHardwareAddr(
				network.NamespaceName, network.FirstHardwareAddr,
			), func(r *network.HardwareAddr) {
				r.TypedSpec().Name, r.TypedSpec().HardwareAddr = l.Name, l.status().TypedSpec().HardwareAddr
			}))
		}

		for _, p := range l.addresses {
			list = append(list, addressStatus(l, p))
		}

		for _, g := range l.gateways {
			list = append(list, resources.Filled(network.NewRouteStatus(
				network.NamespaceName,
				network.RouteID(nethelpers.TableMain, family(g), netip.Prefix{}, g, network.DefaultRouteMetric, l.Name),
			), func(r *network.RouteStatus) {
				s := r.TypedSpec()
				s.Family, s.Gateway, s.OutLinkName, s.OutLinkIndex = family(g), g, l.Name, uint32(l.index)
				s.Table = nethelpers.TableMain
				s.Priority = network.DefaultRouteMetric
				s.Type = nethelpers.TypeUnicast
				s.Protocol = nethelpers.ProtocolStatic
			}))
		}
	}

	for _, a := range held {
		if len(n.Links) > 0 {
			list = append(list, addressStatus(n.Links[0], netip.PrefixFrom(a, a.BitLen())))
		}
	}

	ready := n.Node.IsValid()

	list = append(list,
		resources.Filled(network.NewResolverStatus(
			network.NamespaceName, network.ResolverID,
		), func(r *network.ResolverStatus) {
			r.TypedSpec().DNSServers, r.TypedSpec().SearchDomains = n.DNS, n.search
		}),
		resources.Filled(
			network.NewTimeServerStatus(network.NamespaceName, network.TimeServerID),
			func(r *network.TimeServerStatus) { r.TypedSpec().NTPServers = n.ntp },
		),
		resources.Filled(network.NewStatus(network.NamespaceName, network.StatusID), func(r *network.Status) {
			r.TypedSpec().AddressReady = ready
			r.TypedSpec().ConnectivityReady = ready
			r.TypedSpec().HostnameReady = hostname != ""
			r.TypedSpec().EtcFilesReady = true
		}),
	)

	if hostname != "" {
		list = append(
			list,
			resources.Filled(
				network.NewHostnameStatus(network.NamespaceName, network.HostnameID),
				func(r *network.HostnameStatus) { r.TypedSpec().Hostname = hostname },
			),
		)
	}

	return append(list, n.nodeAddresses(held)...)
}

// nodeAddresses are the address lists: the default one is the first that is not a virtual address.
func (n *Plan) nodeAddresses(held []netip.Addr) []resource.Resource {
	current := append([]netip.Prefix(nil), n.Addresses...)

	for _, a := range held {
		current = append(current, netip.PrefixFrom(a, a.BitLen()))
	}

	var list []resource.Resource

	for id, addresses := range map[string][]netip.Prefix{
		network.NodeAddressDefaultID: n.Addresses[:min(1, len(n.Addresses))], network.NodeAddressCurrentID: current,
		network.NodeAddressRoutedID: n.Addresses, network.NodeAddressAccumulativeID: current,
	} {
		if len(addresses) > 0 {
			list = append(
				list,
				resources.Filled(
					network.NewNodeAddress(network.NamespaceName, id),
					func(r *network.NodeAddress) { r.TypedSpec().Addresses = addresses },
				),
			)
		}
	}

	return list
}

func addressStatus(l *Link, p netip.Prefix) resource.Resource {
	return resources.Filled(network.NewAddressStatus(
		network.NamespaceName, network.AddressID(l.Name, p),
	), func(r *network.AddressStatus) {
		s := r.TypedSpec()
		s.Address, s.LinkName, s.LinkIndex, s.Family, s.Scope = p, l.Name, uint32(l.index), family(
			p.Addr(),
		), nethelpers.ScopeGlobal

		if l.index == 1 {
			s.Scope = nethelpers.ScopeHost
		}
	})
}

// Cards are the physical links as PCI devices.
func (n *Plan) Cards() []datacentre.GuestPCI {
	var devices []datacentre.GuestPCI

	for _, l := range n.Links {
		if l.parent == "" && l.driver == "virtio_net" {
			devices = append(devices, datacentre.GuestPCI{
				Address: l.busPath(), Vendor: "Red Hat, Inc.", Device: "Virtio network device",
				VendorID: "0x1af4", DeviceID: "0x1000", Class: "0x020000",
			})
		}
	}

	return devices
}

// AgentInterfaces are what the QEMU guest agent reports of a machine that holds virtual addresses.
func (n *Plan) AgentInterfaces(held []netip.Addr) []datacentre.AgentInterface {
	list := []datacentre.AgentInterface{
		{Name: "lo", MAC: "00:00:00:00:00:00", Addresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/8")}},
	}

	for _, l := range n.Links {
		list = append(list, datacentre.AgentInterface{Name: l.Name, MAC: l.mac, Addresses: l.addresses})
	}

	for _, a := range held {
		if len(list) > 1 {
			list[1].Addresses = append(slices.Clone(list[1].Addresses), netip.PrefixFrom(a, a.BitLen()))
		}
	}

	return list
}
