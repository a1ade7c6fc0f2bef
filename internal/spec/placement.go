package spec

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// placePool chooses the hosts of a pool's machines. It considers only the pool, so that no other pool moves a machine.
func (p *planner) placePool(g *pool, overrides map[int]nodeOverrides) {
	g.allowed = p.poolHosts(g)
	hosts := g.allowed
	room := func(string) bool { return true }
	load := map[string]int{}

	if len(g.demands) > 0 {
		hosts = p.hostsWithDevices(g, hosts)
		room = func(host string) bool { return load[host] < p.capacity(g, host) }

		p.checkPinnedDevices(g, overrides)
		p.checkControlPlaneHosts(g, hosts, overrides)
	}

	for i := range g.nodes {
		host := overrides[i].Host
		if host == "" {
			continue
		}

		if _, known := p.hosts[host]; !known {
			p.unknownHost(overrides[i].path+".host", host)

			continue
		}

		g.nodes[i].Host, g.nodes[i].HostPinned = host, true
		load[host]++
	}

	var unpinned []string

	unplaced := 0

	for i := range g.nodes {
		n := &g.nodes[i]
		if n.HostPinned || overrides[i].Host != "" {
			continue
		}

		if g.placement == "explicit" {
			unpinned = append(unpinned, n.Name)

			continue
		}

		if n.Host = chooseHost(g.placement, i, hosts, load, room); n.Host == "" {
			unplaced++

			continue
		}

		load[n.Host]++
	}

	if len(g.demands) > 0 {
		p.reportUnplaced(g, unplaced)
	}

	if len(unpinned) > 0 {
		p.problems.Add(
			g.path+".placement", g.placement,
			"leaves %s without a host; set nodes.<number>.host for each, or another placement", strings.Join(unpinned, ", "),
		)
	}

	p.warnQuorum(g, load)
}

// poolHosts returns the hosts that a pool lists, or all in order of names.
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

// chooseHost returns the host of machine i among those with room; empty = none has.
func chooseHost(placement string, i int, hosts []string, load map[string]int, room func(string) bool) string {
	var candidates []string

	for j := range hosts {
		if host := hosts[(i+j)%len(hosts)]; room(host) {
			candidates = append(candidates, host)
		}
	}

	switch {
	case len(candidates) == 0:
		return ""
	case placement == "spread":
		// The first in the list with the fewest machines.
		return slices.MinFunc(candidates, func(a, b string) int {
			return cmp.Or(load[a]-load[b], slices.Index(hosts, a)-slices.Index(hosts, b))
		})
	default:
		return candidates[0]
	}
}

// warnQuorum warns of a host whose failure costs etcd its quorum.
func (p *planner) warnQuorum(g *pool, load map[string]int) {
	if g.role != RoleControlPlane || g.count < 3 {
		return
	}

	for _, host := range slices.Sorted(maps.Keys(load)) {
		if load[host] > g.count/2 {
			p.warn("%s: %d of %d control planes are on %s, which takes the cluster's API with it when it fails; use at least three hosts", g.path, load[host], g.count, host)
		}
	}
}
