package spec

import (
	"fmt"
	"net/netip"
)

// planAddresses assigns addresses in the cluster's network to the pool's machines.
func (p *planner) planAddresses(g *pool, overrides map[int]nodeOverrides) {
	defer p.planIPv6Addresses(g, overrides)

	if !g.inCluster() && g.network.DHCP {
		return // the guest agent reports them
	}

	if g.FirstAddress != "" && len(g.Addresses) > 0 {
		p.problems.Add(g.path+".firstAddress", g.FirstAddress, "is set together with addresses; remove one of the two")

		return
	}

	sequence := p.poolSequence(g, overrides)

	listed := p.listedAddresses(g, overrides)
	for i := range g.nodes {
		n := &g.nodes[i]
		by := claim{owner: n.Name, group: g.path, path: g.path + ".firstAddress", count: g.count, net: g.network}

		var address netip.Addr

		switch {
		case overrides[i].Address != "":
			by.path, by.count = overrides[i].path+".address", 1
			address = p.addressIn(by.path, overrides[i].Address, g.network)
		case len(g.Addresses) > 0 && i < len(listed):
			by.path, by.count = fmt.Sprintf("%s.addresses[%d]", g.path, i), 1
			address = listed[i]
		case i < len(sequence):
			address = sequence[i]
		}

		if address.IsValid() {
			n.Address = netip.PrefixFrom(address, g.network.CIDR.Bits())
			p.addresses.take(address, by)
		}
	}
}

func (p *planner) addressIn(path, text string, n Network) netip.Addr {
	address, ok := p.parseAddress(path, text)
	if !ok || !n.CIDR.IsValid() || !p.checkInside(path, address, n.CIDR) {
		return netip.Addr{}
	}

	return address
}

// listedAddresses parses the pool's list of addresses.
func (p *planner) listedAddresses(g *pool, overrides map[int]nodeOverrides) []netip.Addr {
	listed := make([]netip.Addr, len(g.Addresses))
	for i, text := range g.Addresses {
		at := fmt.Sprintf("%s.addresses[%d]", g.path, i)
		p.checkNotEmpty(at, text, "write it as 10.0.0.2")
		listed[i] = p.addressIn(at, text, g.network)
	}

	last := g.count - 1
	for last >= 0 && overrides[last].Address != "" {
		last--
	}

	if len(listed) > 0 && len(listed) <= last {
		p.problems.Add(
			g.path+".addresses", nil,
			"lists too few addresses: %d for %d machines; add the missing ones, or set firstAddress instead", len(listed),
			g.count,
		)
	}

	return listed
}

// firstOffsets are the offsets in the network of the first machines, unless the pool sets its first address.
var firstOffsets = map[RangeKind]int{RangeControlPlanes: 10, RangeWorkers: 20, RangeGPUWorkers: 40, RangeMachines: 60}

// addressSequence is a sequence of addresses, from the configured first one or from the offset of the kind.
type addressSequence struct {
	path   string // of firstAddress
	first  string
	net    Network
	group  *pool
	wanted func(i int) bool // whether machine i takes its address from the sequence
}

// poolSequence returns the pool's consecutive addresses; nil if it lists addresses instead.
func (p *planner) poolSequence(g *pool, overrides map[int]nodeOverrides) []netip.Addr {
	if len(g.Addresses) > 0 {
		return nil
	}

	return p.sequenceAddresses(
		addressSequence{g.path + ".firstAddress", g.FirstAddress, g.network, g, func(i int) bool { return overrides[i].Address == "" }},
	)
}

// sequenceAddresses returns an address for each machine of the group, and reports the first wanted one that is
// unusable.
func (p *planner) sequenceAddresses(r addressSequence) []netip.Addr {
	if !r.net.CIDR.IsValid() || p.problems.Has(r.path) {
		return nil
	}

	first, shownValue := AddOffset(r.net.CIDR.Addr(), firstOffsets[r.group.kind]), any(nil)
	if r.first != "" {
		var ok bool
		if first, ok = p.parseAddress(r.path, r.first); !ok {
			return nil
		}

		shownValue = r.first
	}

	addresses := make([]netip.Addr, 0, r.group.count)
	for i := range r.group.count {
		address := AddOffset(first, i)

		why := addressProblem(address, r.net.CIDR)
		if first := i == 0 && r.first != ""; why == "" || !first && !r.wanted(i) {
			addresses = append(addresses, address)

			continue
		}

		switch {
		case i > 0:
			why = fmt.Sprintf("gives %s-%d the address %s, which %s", r.group.namePrefix(), i+1, address, why)
		case shownValue == nil:
			why = fmt.Sprintf("is not set, and the default %s %s", address, why)
		}

		p.problems.Add(r.path, shownValue, "%s; %s", why, p.suggestAddress(claim{count: r.group.count, net: r.net}))

		return nil
	}

	return addresses
}
