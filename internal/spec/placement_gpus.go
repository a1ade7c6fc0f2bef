package spec

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// gpuCapacity returns how many machines of a pool a host has GPUs for, without regard to other pools.
func (p *planner) gpuCapacity(g *pool, host string) int {
	return len(p.gpusOn(host, g.gpu)) / max(g.gpuUse.GPUsPerNode, 1)
}

// gpusOn returns the GPUs of a name on a host, sorted by address.
func (p *planner) gpusOn(host, name string) []GPU {
	var gpus []GPU

	for _, gpu := range p.hosts[host].GPUs {
		if gpu.Name == name {
			gpus = append(gpus, gpu)
		}
	}

	return gpus
}

// hostsWithGPU returns the pool's hosts that have its GPU, and reports listed hosts that do not.
func (p *planner) hostsWithGPU(g *pool, hosts []string) []string {
	hostsWith := make([]string, 0, len(hosts))
	for _, host := range hosts {
		if p.gpuCapacity(g, host) > 0 {
			hostsWith = append(hostsWith, host)

			continue
		}

		i := slices.Index(g.Hosts, host)
		if _, known := p.gpuKinds[g.gpu]; i < 0 || !known || p.problems.Has(p.hosts[host].Path+".gpus") {
			continue
		}

		p.problems.Add(
			fmt.Sprintf("%s.hosts[%d]", g.path, i), host, "has %s; remove it, or add the GPU to %s.gpus", p.describeShortage(g, host),
			p.hosts[host].Path,
		)
	}

	return hostsWith
}

// describeShortage describes what a host lacks: no GPU "rtx4000", or 1 of the GPU "rtx4000", and each machine needs 2.
func (p *planner) describeShortage(g *pool, host string) string {
	have := len(p.gpusOn(host, g.gpu))
	if have == 0 {
		return fmt.Sprintf("no GPU %q", g.gpu)
	}

	return fmt.Sprintf("%d of the GPU %q, and each machine needs %d", have, g.gpu, g.gpuUse.GPUsPerNode)
}

// checkPinnedGPUs reports pinned machines of a pool whose host has too few GPUs.
func (p *planner) checkPinnedGPUs(g *pool, overrides map[int]nodeOverrides) {
	if _, known := p.gpuKinds[g.gpu]; g.gpu == "" || !known {
		return
	}

	pinned := map[string]int{}

	for i := range g.nodes {
		host := overrides[i].Host

		h, known := p.hosts[host]
		if !known || p.problems.Has(h.Path+".gpus") {
			continue
		}

		pinned[host]++
		if pinned[host] <= p.gpuCapacity(g, host) {
			continue
		}

		why := "has " + p.describeShortage(g, host)
		if p.gpuCapacity(g, host) > 0 {
			why = fmt.Sprintf(
				"has %d of the GPU %q, and other machines of the pool are pinned to it", len(p.gpusOn(host, g.gpu)), g.gpu,
			)
		}

		p.problems.Add(
			overrides[i].path+".host", host, "%s; choose a host that has one free, or add the GPU to %s.gpus", why, h.Path,
		)
	}
}

// reportUnplaced reports machines for which the pool's hosts have no GPU left.
func (p *planner) reportUnplaced(g *pool, unplaced int) {
	_, known := p.gpuKinds[g.gpu]
	if unplaced == 0 || !known || p.problems.Has("hosts") || p.problems.Has(g.path+".hosts") ||
		p.problems.Has(g.path+".nodes") {
		return
	}

	var have []string

	largest := 0

	for _, host := range p.poolHosts(g) {
		if n := len(p.gpusOn(host, g.gpu)); n > 0 {
			have = append(have, fmt.Sprintf("%s %d", host, n))
			largest = max(largest, n)
		}
	}

	if g.gpuUse.GPUsPerNode > largest {
		p.problems.Add(
			g.path+".gpusPerNode", g.gpuUse.GPUsPerNode, "is more than one host has of the GPU %q (%s); use at most %d", g.gpu,
			strings.Join(have, ", "), largest,
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

// checkGPUControlPlanes requires hosts for control planes with GPUs, so that a GPU added to another host cannot move,
// and thereby replace, a control plane.
func (p *planner) checkGPUControlPlanes(g *pool, hosts []string, overrides map[int]nodeOverrides) {
	if g.gpu == "" || g.role != RoleControlPlane || len(g.Hosts) > 0 || len(hosts) < 2 {
		return
	}

	for i := range g.nodes {
		if overrides[i].Host == "" {
			p.problems.Add(g.path+".hosts", nil,
				"is missing, and %s have the GPU %q; set those of this pool, so that another GPU never replaces a control plane",
				strings.Join(hosts, " and "), g.gpu)

			return
		}
	}
}

// assignGPUs assigns each device to one machine, in order of the machines' names, so that the order of the
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
			at, holder := key{n.Host, n.GPUs[i].Name}, owner{n.Name, n.Cluster + "-" + n.Pool}

			devices, holding := p.gpusOn(at.host, at.name), holders[at]
			if n.Host == "" || len(devices) == 0 {
				break
			}

			foreign := slices.IndexFunc(holding, func(o owner) bool { return o.pool != holder.pool })
			switch {
			case len(holding) >= len(devices) && foreign >= 0:
				p.reportGPUConflict(
					reported, holder.pool, at.host, at.name,
					fmt.Sprintf("belongs to %s already, so %s cannot have it", holding[foreign].machine, n.Name),
				)
			case devices[0].Raw && foreign >= 0:
				p.reportGPUConflict(
					reported, holder.pool, at.host, at.name,
					fmt.Sprintf(
						"is passed through by address, and %s has one of the name already; a pool needs raw GPUs of its own name",
						holding[foreign].machine,
					),
				)
			case len(holding) < len(devices):
				n.GPUs[i] = devices[len(holding)]
			}

			holders[at] = append(holding, holder)
		}
	}
}

// reportGPUConflict reports, once per pool, that another pool uses its GPUs, and suggests hosts with free ones.
func (p *planner) reportGPUConflict(reported map[string]bool, prefix, host, name, why string) {
	i := slices.IndexFunc(p.pools, func(g *pool) bool { return g.namePrefix() == prefix })
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

		if other != host && len(p.gpusOn(other, name))-used >= g.gpuUse.GPUsPerNode {
			others = append(others, other)
		}
	}

	remedy := "use fewer machines, or add a GPU to hosts[].gpus"
	if len(others) > 0 {
		remedy = "use hosts with a free one: " + strings.Join(others, ", ")
	}

	p.problems.Add(g.path+".gpu", name, "of %s %s; %s", host, why, remedy)
}
