package spec

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// place decides the hosts of a pool's machines. It looks at the pool alone, so that no neighbour moves a machine.
func (p *planner) place(g *pool, own map[int]ownNode) {
	hosts := p.poolHosts(g)
	room := func(string) bool { return true }
	load := map[string]int{}

	if g.gpu != "" {
		hosts = p.gpuHosts(g, hosts)
		room = func(host string) bool { return load[host] < p.gpuRoom(g, host) }

		p.checkPinnedGPUs(g, own)
		p.checkGPUControlPlanes(g, hosts, own)
	}

	for i := range g.nodes {
		stated := own[i].Host
		if stated == "" {
			continue
		}

		if _, known := p.hosts[stated]; !known {
			p.unknownHost(own[i].path+".host", stated)

			continue
		}

		g.nodes[i].Host, g.nodes[i].HostPinned = stated, true
		load[stated]++
	}

	var open []string

	unplaced := 0

	for i := range g.nodes {
		n := &g.nodes[i]
		if n.HostPinned || own[i].Host != "" {
			continue
		}

		if g.placement == "explicit" {
			open = append(open, n.Name)

			continue
		}

		if n.Host = choose(g.placement, i, hosts, load, room); n.Host == "" {
			unplaced++

			continue
		}

		load[n.Host]++
	}

	if g.gpu != "" {
		p.reportUnplaced(g, unplaced)
	}

	if len(open) > 0 {
		p.problems.Add(
			g.path+".placement", g.placement,
			"leaves %s without a host; set nodes.<number>.host for each, or another placement", strings.Join(open, ", "),
		)
	}

	p.warnMajority(g, load)
}

// poolHosts returns the hosts a pool lists, or all in order of names.
func (p *planner) poolHosts(g *pool) []string {
	if len(g.Hosts) == 0 {
		return p.hostNames
	}

	var hosts []string

	for i, name := range g.Hosts {
		at := fmt.Sprintf("%s.hosts[%d]", g.path, i)

		switch _, known := p.hosts[name]; {
		case !known:
			p.unknownHost(at, name)
		case slices.Contains(hosts, name):
			p.problems.Add(at, name, "is listed twice; remove one of the two")
		default:
			hosts = append(hosts, name)
		}
	}

	return hosts
}

func (p *planner) unknownHost(path, name string) {
	if !p.problems.Has(path) && len(p.hosts) > 0 {
		p.problems.Add(path, name, "is not a host; %s", suggestName(name, slices.Collect(maps.Keys(p.hosts)), "hosts"))
	}
}

// choose returns the host of the machine i among those with room; empty = none has.
func choose(placement string, i int, hosts []string, load map[string]int, room func(string) bool) string {
	var open []string

	for j := range hosts {
		if host := hosts[(i+j)%len(hosts)]; room(host) {
			open = append(open, host)
		}
	}

	switch {
	case len(open) == 0:
		return ""
	case placement == "spread":
		// The first in order of the list among those with the fewest machines.
		return slices.MinFunc(open, func(a, b string) int {
			return cmp.Or(load[a]-load[b], slices.Index(hosts, a)-slices.Index(hosts, b))
		})
	default:
		return open[0]
	}
}

// warnMajority warns of a host whose failure takes etcd's majority with it.
func (p *planner) warnMajority(g *pool, load map[string]int) {
	if g.role != RoleControlPlane || g.count < 3 {
		return
	}

	for _, host := range slices.Sorted(maps.Keys(load)) {
		if load[host] > g.count/2 {
			p.warn("%s: %d of %d control planes are on %s, which takes the cluster's API with it when it fails; use at least three hosts", g.path, load[host], g.count, host)
		}
	}
}
