package datacentre

import (
	"net/netip"
	"strings"
)

// Network is the subnet behind a bridge, on every host that has the bridge.
type Network struct {
	Bridge  string
	Prefix  netip.Prefix
	Gateway netip.Addr
	DNS     []netip.Addr
	// First and Last bound the DHCP pool; without them only reservations are served.
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
	d.mu.Lock()
	defer d.mu.Unlock()

	d.state.Reservations[strings.ToLower(mac)] = addr
	d.changed()
}

// Lease asks the DHCP server of a bridge; the same card gets the same address again. False where there is no server or
// its pool is exhausted.
func (d *Datacentre) Lease(bridge, mac string) (Lease, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()

	mac = strings.ToLower(mac)

	for _, n := range d.options.Networks {
		if n.Bridge != bridge {
			continue
		}

		addr, ok := d.leaseFrom(n, mac)
		if !ok {
			return Lease{}, false
		}

		return Lease{Address: netip.PrefixFrom(addr, n.Prefix.Bits()), Gateway: n.Gateway, DNS: n.DNS}, true
	}

	return Lease{}, false
}

func (d *Datacentre) leaseFrom(n Network, mac string) (netip.Addr, bool) {
	if a, ok := d.state.Reservations[mac]; ok {
		return a, true
	}

	key := n.Bridge + "/" + mac
	if a, ok := d.state.Leases[key]; ok && n.Prefix.Contains(a) {
		return a, true
	}

	if !n.First.IsValid() || !n.Last.IsValid() {
		return netip.Addr{}, false
	}

	taken := map[netip.Addr]bool{}
	for _, a := range d.state.Reservations {
		taken[a] = true
	}

	for _, a := range d.state.Leases {
		taken[a] = true
	}

	for a := n.First; a.Compare(n.Last) <= 0; a = a.Next() {
		if !taken[a] {
			d.state.Leases[key] = a
			d.changed()

			return a, true
		}
	}

	return netip.Addr{}, false
}
