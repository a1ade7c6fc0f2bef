package spec

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// share is the group of machines of one pool and size on a host.
type share struct {
	pool  string
	size  int
	count int
	only  string // the name of the first machine, shown if it is the only one
}

// checkCapacity compares planned machines with each host's capacity for guests. Memory cannot be overcommitted; too
// many cores are only a warning, unless a single machine has more than its host.
func (p *planner) checkCapacity() {
	for i, c := range p.config.Hosts {
		h, known := p.hosts[c.Name]
		if path := fmt.Sprintf("hosts[%d]", i); known && h.Path == path {
			p.checkMemory(path+".capacity.memoryMiB", h)
			p.checkCores(path+".capacity.cores", h)
		}
	}
}

func (p *planner) checkMemory(path string, h Host) {
	shares := p.sharesOn(h.Name, func(n Node) int { return n.MemoryMiB })
	if planned := sum(shares); h.MemoryMiB > 0 && planned > h.MemoryMiB {
		p.problems.Add(path, h.MemoryMiB,
			"is less than the %d MiB planned for %s (= %s); place machines on other hosts, make them smaller, or set more if the host has it",
			planned, h.Name, explain(shares))
	}
}

func (p *planner) checkCores(path string, h Host) {
	if h.Cores == 0 {
		return
	}

	shares := p.sharesOn(h.Name, func(n Node) int { return n.Cores })
	for _, s := range shares {
		if s.size > h.Cores {
			p.problems.Add(
				path, h.Cores,
				"is less than the %d cores of %s, and Proxmox does not start such a machine; give it fewer cores, or another host",
				s.size, s.only,
			)

			return
		}
	}

	if planned := sum(shares); planned > h.Cores {
		p.warn(
			"%s: %d cores are planned on %s, which has %d for guests (= %s); machines will wait for each other", path, planned,
			h.Name, h.Cores, explain(shares),
		)
	}
}

// sharesOn returns the shares of a host, largest first.
func (p *planner) sharesOn(host string, size func(Node) int) []share {
	var shares []share

	for _, g := range p.pools {
		for _, n := range g.nodes {
			if n.Host != host {
				continue
			}

			i := slices.IndexFunc(shares, func(s share) bool { return s.pool == g.namePrefix() && s.size == size(n) })
			if i < 0 {
				shares = append(shares, share{pool: g.namePrefix(), size: size(n), only: n.Name})
				i = len(shares) - 1
			}

			shares[i].count++
		}
	}

	slices.SortStableFunc(shares, func(a, b share) int { return cmp.Compare(b.size*b.count, a.size*a.count) })

	return shares
}

func sum(shares []share) int {
	total := 0
	for _, s := range shares {
		total += s.size * s.count
	}

	return total
}

// explain returns the terms of the sum: 3 × 4096 prod-cp + 1 × 8192 prod-general-1.
func explain(shares []share) string {
	terms := make([]string, len(shares))
	for i, s := range shares {
		name := s.pool
		if s.count == 1 {
			name = s.only
		}

		terms[i] = fmt.Sprintf("%d × %d %s", s.count, s.size, name)
	}

	return strings.Join(terms, " + ")
}
