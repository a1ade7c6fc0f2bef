package datacentre

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Network is the subnet with DHCP behind a bridge, on each host that has the bridge.
type Network struct {
	Bridge  string
	Prefix  netip.Prefix
	Gateway netip.Addr
	DNS     []netip.Addr
	// First and Last are the bounds of the DHCP pool.
	First, Last netip.Addr
}

// Lease is a DHCP lease of a network card.
type Lease struct {
	Address netip.Prefix
	Gateway netip.Addr
	DNS     []netip.Addr
}

// Reserve reserves an address for a network card in DHCP.
func (d *Datacentre) Reserve(mac string, addr netip.Addr) {
	defer d.lockWrite()()

	d.state.Reservations[strings.ToLower(mac)] = addr
}

// Lease returns a network card's lease from the DHCP server of a bridge, or false if there is no server or its pool is
// exhausted. A card gets the same address again.
func (d *Datacentre) Lease(bridge, mac string) (Lease, bool) {
	defer d.lockWrite()()

	n := d.options.Network
	if bridge != n.Bridge || !n.Prefix.IsValid() {
		return Lease{}, false
	}

	addr, ok := d.leaseAddress(n, strings.ToLower(mac))

	return Lease{Address: netip.PrefixFrom(addr, n.Prefix.Bits()), Gateway: n.Gateway, DNS: n.DNS}, ok
}

func (d *Datacentre) leaseAddress(n Network, mac string) (netip.Addr, bool) {
	if a, ok := d.state.Reservations[mac]; ok {
		return a, true
	}

	key := n.Bridge + "/" + mac
	if a, ok := d.state.Leases[key]; ok && n.Prefix.Contains(a) {
		return a, true
	}

	taken := map[netip.Addr]bool{}

	for _, list := range []map[string]netip.Addr{d.state.Reservations, d.state.Leases} {
		for _, a := range list {
			taken[a] = true
		}
	}

	for a := n.First; a.Compare(n.Last) <= 0; a = a.Next() {
		if !taken[a] {
			d.state.Leases[key] = a

			return a, true
		}
	}

	return netip.Addr{}, false
}

// checkBridge refuses a network card that cannot be connected; missingBridge is Proxmox' message for a missing bridge.
func (h *HostOptions) checkBridge(n NIC, missingBridge string) error {
	switch {
	case n.Bridge == "":
		return nil
	case !slices.Contains(h.Bridges, n.Bridge):
		return fmt.Errorf(missingBridge, n.Bridge)
	case n.VLAN != 0 && !h.Tags(n.Bridge): // without VLAN awareness, a port tags the VLAN
		return fmt.Errorf("no physical interface on bridge '%s'", n.Bridge)
	default:
		return nil
	}
}

// hotplugNICs applies changed network cards to a running VM.
func (d *Datacentre) hotplugNICs(v *vm, set Config) error {
	if v.Started == nil {
		return nil
	}

	problems := map[string]string{}

	for _, k := range set.numbered("net") {
		if err := d.hotplugNIC(v, k); err != nil {
			problems[k] = "hotplug problem - " + err.Error() + "\n"
		} else {
			v.Started[k] = v.Config[k]
		}
	}

	if len(problems) > 0 {
		return ParameterError(problems)
	}

	return nil
}

// hotplugNIC moves an existing card to another bridge, or plugs a new one.
func (d *Datacentre) hotplugNIC(v *vm, key string) error {
	old := Config{key: v.Started[key]}.nics()

	for _, n := range (Config{key: v.Config[key]}).nics() {
		err := d.host(v.Host).checkBridge(n, "interface %s does not exist")
		if err != nil && (len(old) == 0 || old[0].Model != n.Model || old[0].MAC != n.MAC) {
			return fmt.Errorf("VM %d qmp command 'netdev_add' failed - network script "+
				"/usr/libexec/qemu-server/pve-bridge-hotplug failed with status 256", v.ID)
		}

		if err != nil {
			return err
		}
	}

	return nil
}
