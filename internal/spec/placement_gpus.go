package spec

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// gpuRoom returns how many machines of a pool a host has GPUs for, other pools left aside.
func (p *planner) gpuRoom(g *pool, host string) int {
	return len(p.gpusOn(host, g.gpu)) / max(g.use.GPUsPerNode, 1)
}

// gpusOn returns the GPUs of a name on a host, in order of their addresses.
func (p *planner) gpusOn(host, name string) []GPU {
	var gpus []GPU

	for _, gpu := range p.hosts[host].GPUs {
		if gpu.Name == name {
			gpus = append(gpus, gpu)
		}
	}

	return gpus
}

// gpuHosts returns those of a pool's hosts that have its GPU, and reports listed ones that have not.
func (p *planner) gpuHosts(g *pool, hosts []string) []string {
	with := make([]string, 0, len(hosts))
	for _, host := range hosts {
		if p.gpuRoom(g, host) > 0 {
			with = append(with, host)

			continue
		}

		i := slices.Index(g.Hosts, host)
		if _, known := p.gpuKinds[g.gpu]; i < 0 || !known || p.problems.Has(p.hosts[host].Path+".gpus") {
			continue
		}

		p.problems.Add(
			fmt.Sprintf("%s.hosts[%d]", g.path, i), host, "has %s; remove it, or add the GPU to %s.gpus", p.lack(g, host),
			p.hosts[host].Path,
		)
	}

	return with
}

// lack says what a host is short of: no GPU "rtx4000", or 1 GPU "rtx4000", of which each machine needs 2.
func (p *planner) lack(g *pool, host string) string {
	have := len(p.gpusOn(host, g.gpu))
	if have == 0 {
		return fmt.Sprintf("no GPU %q", g.gpu)
	}

	return fmt.Sprintf("%d of the GPU %q, and each machine needs %d", have, g.gpu, g.use.GPUsPerNode)
}

// checkPinnedGPUs judges the machines of a pool that state their host against its GPUs.
func (p *planner) checkPinnedGPUs(g *pool, own map[int]ownNode) {
	if _, known := p.gpuKinds[g.gpu]; g.gpu == "" || !known {
		return
	}

	pinned := map[string]int{}

	for i := range g.nodes {
		host := own[i].Host

		h, known := p.hosts[host]
		if !known || p.problems.Has(h.Path+".gpus") {
			continue
		}

		pinned[host]++
		if pinned[host] <= p.gpuRoom(g, host) {
			continue
		}

		why := "has " + p.lack(g, host)
		if p.gpuRoom(g, host) > 0 {
			why = fmt.Sprintf(
				"has %d of the GPU %q, and other machines of the pool are pinned to it", len(p.gpusOn(host, g.gpu)), g.gpu,
			)
		}

		p.problems.Add(
			own[i].path+".host", host, "%s; choose a host that has one free, or add the GPU to %s.gpus", why, h.Path,
		)
	}
}

// reportUnplaced reports machines for which the pool's hosts have no GPU left.
func (p *planner) reportUnplaced(g *pool, unplaced int) {
	_, known := p.gpuKinds[g.gpu]
	if unplaced == 0 || !known || p.problems.Has("hosts") || p.problems.Has(g.path+".hosts") || p.problems.Has(g.path+
		".nodes") {
		return
	}

	var have []string

	most := 0

	for _, host := range p.poolHosts(g) {
		if n := len(p.gpusOn(host, g.gpu)); n > 0 {
			have = append(have, fmt.Sprintf("%s %d", host, n))
			most = max(most, n)
		}
	}

	if g.use.GPUsPerNode > most {
		p.problems.Add(
			g.path+".gpusPerNode", g.use.GPUsPerNode, "is more than one host has of the GPU %q (%s); use at most %d", g.gpu,
			strings.Join(have, ", "), most,
		)

		return
	}

	remedy := fmt.Sprintf("use at most %d", g.count-unplaced)
	if g.role == RoleControlPlane {
		remedy = "use fewer control planes"
	}

	p.problems.Add(
		g.path+".count", g.count, "is more machines than there are GPUs %q for (%s); %s, or add GPUs to hosts[].gpus", g.gpu,
		strings.Join(have, ", "), remedy,
	)
}

// checkGPUControlPlanes keeps a GPU that is added elsewhere from moving a control plane: where its GPU is it must be,
// and it would be replaced there.
func (p *planner) checkGPUControlPlanes(g *pool, hosts []string, own map[int]ownNode) {
	if g.gpu == "" || g.role != RoleControlPlane || len(g.Hosts) > 0 || len(hosts) < 2 {
		return
	}

	for i := range g.nodes {
		if own[i].Host == "" {
			p.problems.Add(g.path+".hosts", nil,
				"is missing, and %s have the GPU %q; set those of this pool, so that another GPU never replaces a control plane",
				strings.Join(hosts, " and "), g.gpu)

			return
		}
	}
}

// assignGPUs gives each machine its devices, each device once. It follows the machines' names, so that the order of the
// configuration does not matter.
func (p *planner) assignGPUs(clusters []Cluster) {
	type key struct{ host, name string }

	type owner struct{ machine, pool string }

	holders := map[key][]owner{}

	var nodes []*Node

	for i := range clusters {
		for j := range clusters[i].ControlPlanes {
			nodes = append(nodes, &clusters[i].ControlPlanes[j])
		}

		for j := range clusters[i].Workers {
			nodes = append(nodes, &clusters[i].Workers[j])
		}
	}

	slices.SortStableFunc(nodes, func(a, b *Node) int {
		return cmp.Or(strings.Compare(a.Cluster, b.Cluster), strings.Compare(a.Pool, b.Pool), cmp.Compare(a.Index, b.Index))
	})

	reported := map[string]bool{}

	for _, n := range nodes {
		for i := range n.GPUs {
			at, own := key{n.Host, n.GPUs[i].Name}, owner{n.Name, n.Cluster + "-" + n.Pool}

			devices, held := p.gpusOn(at.host, at.name), holders[at]
			if n.Host == "" || len(devices) == 0 {
				break
			}

			foreign := slices.IndexFunc(held, func(o owner) bool { return o.pool != own.pool })
			switch {
			case len(held) >= len(devices) && foreign >= 0:
				p.reportTaken(
					reported, own.pool, at.host, at.name,
					fmt.Sprintf("belongs to %s already, so %s cannot have it", held[foreign].machine, n.Name),
				)
			case devices[0].Raw && foreign >= 0:
				p.reportTaken(
					reported, own.pool, at.host, at.name,
					fmt.Sprintf(
						"is passed through by address, and %s has one of the name already; a pool needs raw GPUs of its own name",
						held[foreign].machine,
					),
				)
			case len(held) < len(devices):
				n.GPUs[i] = devices[len(held)]
			}

			holders[at] = append(held, own)
		}
	}
}

// reportTaken reports a pool whose GPUs are another pool's, once, with a host that has one free.
func (p *planner) reportTaken(reported map[string]bool, prefix, host, name, why string) {
	i := slices.IndexFunc(p.pools, func(g *pool) bool { return g.prefix() == prefix })
	if i < 0 || reported[prefix] || p.problems.Has(p.pools[i].path) {
		return
	}

	reported[prefix] = true
	g := p.pools[i]

	var others []string

	for _, other := range p.hostNames {
		used := 0

		for _, q := range p.pools {
			for _, n := range q.nodes {
				if n.Host == other && q.gpu == name {
					used += len(n.GPUs)
				}
			}
		}

		if other != host && len(p.gpusOn(other, name))-used >= g.use.GPUsPerNode {
			others = append(others, other)
		}
	}

	remedy := "use fewer machines, or add a GPU to hosts[].gpus"
	if len(others) > 0 {
		remedy = "use hosts with a free one: " + strings.Join(others, ", ")
	}

	p.problems.Add(g.path+".gpu", name, "of %s %s; %s", host, why, remedy)
}
