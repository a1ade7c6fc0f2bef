package spec

import (
	"fmt"
	"net/netip"
)

// planAddresses gives the pool's machines their addresses in the cluster's network.
func (p *planner) planAddresses(g *pool, own map[int]ownNode) {
	if !g.ofCluster() && g.network.DHCP {
		return // the agent tells what they get
	}

	if g.FirstAddress != "" && len(g.Addresses) > 0 {
		p.problems.Add(g.path+".firstAddress", g.FirstAddress, "is set together with addresses; remove one of the two")

		return
	}

	row := p.addressRow(g, own)

	listed := p.listedAddresses(g, own)
	for i := range g.nodes {
		n := &g.nodes[i]
		by := claim{owner: n.Name, group: g.path, path: g.path + ".firstAddress", count: g.count, net: g.network}

		var address netip.Addr

		switch {
		case own[i].Address != "":
			by.path, by.count = own[i].path+".address", 1
			address = p.statedAddress(by.path, own[i].Address, g.network)
		case len(g.Addresses) > 0 && i < len(listed):
			by.path, by.count = fmt.Sprintf("%s.addresses[%d]", g.path, i), 1
			address = listed[i]
		case i < len(row):
			address = row[i]
		}

		if address.IsValid() {
			n.Address = netip.PrefixFrom(address, g.network.CIDR.Bits())
			p.addresses.take(address, by)
		}
	}
}

func (p *planner) statedAddress(path, text string, n Network) netip.Addr {
	address, ok := p.address(path, text)
	if !ok || !n.CIDR.IsValid() || !p.inside(path, address, n.CIDR) {
		return netip.Addr{}
	}

	return address
}

// listedAddresses reads the pool's list of addresses.
func (p *planner) listedAddresses(g *pool, own map[int]ownNode) []netip.Addr {
	listed := make([]netip.Addr, len(g.Addresses))
	for i, text := range g.Addresses {
		at := fmt.Sprintf("%s.addresses[%d]", g.path, i)
		p.requireText(at, text, "write it as 10.0.0.2")
		listed[i] = p.statedAddress(at, text, g.network)
	}

	last := g.count - 1
	for last >= 0 && own[last].Address != "" {
		last--
	}

	if len(listed) > 0 && len(listed) <= last {
		p.problems.Add(
			g.path+".addresses", nil,
			"lists too few addresses: %d for %d machines; add the missing ones, or state firstAddress instead", len(listed),
			g.count,
		)
	}

	return listed
}

// Addresses are counted from these places of the network unless the pool sets its first.
var firstOffsets = map[RangeKind]int{RangeControlPlanes: 10, RangeWorkers: 20, RangeGPUWorkers: 40, RangeMachines: 60}

// row is a row of addresses to give out: from the stated first one on, or from the kind's place in the network.
type row struct {
	path   string // of firstAddress
	stated string
	net    Network
	group  *pool
	wanted func(i int) bool // whether the machine i takes its address from the row
}

// addressRow returns the addresses from the pool's first one on; nil where it has none.
func (p *planner) addressRow(g *pool, own map[int]ownNode) []netip.Addr {
	if len(g.Addresses) > 0 {
		return nil
	}

	return p.row(
		row{g.path + ".firstAddress", g.FirstAddress, g.network, g, func(i int) bool { return own[i].Address == "" }},
	)
}

// row returns an address for each machine of the group, and reports the first one that is wanted and cannot be used.
func (p *planner) row(r row) []netip.Addr {
	if !r.net.CIDR.IsValid() || p.problems.Has(r.path) {
		return nil
	}

	first, shown := offset(r.net.CIDR.Addr(), firstOffsets[r.group.kind]), any(nil)
	if r.stated != "" {
		var ok bool
		if first, ok = p.address(r.path, r.stated); !ok {
			return nil
		}

		shown = r.stated
	}

	addresses := make([]netip.Addr, 0, r.group.count)
	for i := range r.group.count {
		address := offset(first, i)

		why := unusable(address, r.net.CIDR)
		if first := i == 0 && r.stated != ""; why == "" || !first && !r.wanted(i) {
			addresses = append(addresses, address)

			continue
		}

		switch {
		case i > 0:
			why = fmt.Sprintf("gives %s-%d the address %s, which %s", r.group.prefix(), i+1, address, why)
		case shown == nil:
			why = fmt.Sprintf("is not set, and the default %s %s", address, why)
		}

		p.problems.Add(r.path, shown, "%s; %s", why, p.freeAddresses(claim{count: r.group.count, net: r.net}))

		return nil
	}

	return addresses
}
