package datacentre

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Network is the subnet behind a bridge, on every host that has the bridge, with DHCP.
type Network struct {
	Bridge  string
	Prefix  netip.Prefix
	Gateway netip.Addr
	DNS     []netip.Addr
	// First and Last bound the DHCP pool.
	First, Last netip.Addr
}

// Lease is what DHCP gave a network card.
type Lease struct {
	Address netip.Prefix
	Gateway netip.Addr
	DNS     []netip.Addr
}

// Reserve makes DHCP give the card this address from now on.
func (d *Datacentre) Reserve(mac string, addr netip.Addr) {
	defer d.changing()()

	d.state.Reservations[strings.ToLower(mac)] = addr
}

// Lease asks the DHCP server of a bridge; the same card gets the same address again. False where there is no server or
// its pool is exhausted.
func (d *Datacentre) Lease(bridge, mac string) (Lease, bool) {
	defer d.changing()()

	n := d.options.Network
	if bridge != n.Bridge || !n.Prefix.IsValid() {
		return Lease{}, false
	}

	addr, ok := d.leased(n, strings.ToLower(mac))

	return Lease{Address: netip.PrefixFrom(addr, n.Prefix.Bits()), Gateway: n.Gateway, DNS: n.DNS}, ok
}

func (d *Datacentre) leased(n Network, mac string) (netip.Addr, bool) {
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

// connects says whether a card gets to its bridge; absent is how Proxmox says that there is no such bridge.
func (h *HostOptions) connects(n NIC, absent string) error {
	switch {
	case n.Bridge == "":
		return nil
	case !slices.Contains(h.Bridges, n.Bridge):
		return fmt.Errorf(absent, n.Bridge)
	case n.VLAN != 0 && n.Bridge != h.Bridges[0]: // one that is not VLAN-aware has a VLAN tagged at its ports
		return fmt.Errorf("no physical interface on bridge '%s'", n.Bridge)
	default:
		return nil
	}
}

// plug connects the cards of a change to their bridges while the VM runs.
func (d *Datacentre) plug(v *vm, set Config) error {
	if v.Started == nil {
		return nil
	}

	problems := map[string]string{}

	for _, k := range set.numbered("net") {
		if err := d.plugNIC(v, k); err != nil {
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

// plugNIC moves a card that is there to another bridge, or plugs one that is not.
func (d *Datacentre) plugNIC(v *vm, key string) error {
	was := Config{key: v.Started[key]}.nics()

	for _, n := range (Config{key: v.Config[key]}).nics() {
		err := d.host(v.Host).connects(n, "interface %s does not exist")
		if err != nil && (len(was) == 0 || was[0].Model != n.Model || was[0].MAC != n.MAC) {
			return fmt.Errorf("VM %d qmp command 'netdev_add' failed - network script "+
				"/usr/libexec/qemu-server/pve-bridge-hotplug failed with status 256", v.ID)
		}

		if err != nil {
			return err
		}
	}

	return nil
}
