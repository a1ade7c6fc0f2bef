package spec

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// assignDevices assigns each device to one machine, in order of the machines' names, so that the order of the
// configuration does not matter.
func (p *planner) assignDevices(plan *Plan) {
	type key struct{ host, name string }

	holders := map[key][]deviceUser{}
	reported := map[string]bool{}

	for _, n := range deviceUsers(plan) {
		for i := range n.devices {
			device := &n.devices[i]
			at := key{n.Host, device.Name}

			devices, holding := p.devicesOn(at.host, at.name), holders[at]
			if n.Host == "" || len(devices) == 0 {
				continue
			}

			foreign := slices.IndexFunc(holding, func(o deviceUser) bool { return o.prefix != n.prefix })
			switch {
			case len(holding) >= len(devices) && foreign >= 0:
				p.reportDeviceConflict(
					reported, n.prefix, at.host, at.name,
					fmt.Sprintf("belongs to %s already, so %s cannot have it", holding[foreign].Name, n.Name),
				)
			case devices[0].Raw && foreign >= 0:
				p.reportDeviceConflict(
					reported, n.prefix, at.host, at.name,
					fmt.Sprintf(
						"is passed through by address, and %s has one of the name already; a pool needs raw GPUs of its own name",
						holding[foreign].Name,
					),
				)
			case len(holding) >= len(devices) && device.Kind != NVIDIAGPU:
				p.reportDeviceConflict(
					reported, n.prefix, at.host, at.name,
					fmt.Sprintf("belongs to %s already, so %s cannot have it", holding[0].Name, n.Name),
				)
			case len(holding) < len(devices):
				*device = devices[len(holding)]
			}

			holders[at] = append(holding, n)
		}
	}
}

// deviceUser is a machine with its GPUs or its other devices.
type deviceUser struct {
	*VM

	cluster, prefix string
	devices         []Device
}

// deviceUsers returns the machines of a plan in order of cluster, pool and number.
func deviceUsers(plan *Plan) []deviceUser {
	var users []deviceUser

	for i := range plan.Clusters {
		c := &plan.Clusters[i]
		for _, nodes := range [][]Node{c.ControlPlanes, c.Workers} {
			for j := range nodes {
				n, prefix := &nodes[j], c.Name+"-"+nodes[j].Pool
				users = append(users, deviceUser{&n.VM, c.Name, prefix, n.GPUs}, deviceUser{&n.VM, c.Name, prefix, n.Devices})
			}
		}
	}

	for i := range plan.Machines {
		m := &plan.Machines[i]
		users = append(users, deviceUser{&m.VM, "", m.Pool, m.Devices})
	}

	slices.SortStableFunc(users, func(a, b deviceUser) int {
		return cmp.Or(strings.Compare(a.cluster, b.cluster), strings.Compare(a.Pool, b.Pool), cmp.Compare(a.Index, b.Index))
	})

	return users
}

// reportDeviceConflict reports, once per pool, that another machine uses its devices, and suggests hosts with free
// ones.
func (p *planner) reportDeviceConflict(reported map[string]bool, prefix, host, name, why string) {
	i := slices.IndexFunc(p.pools, func(g *pool) bool { return g.namePrefix() == prefix })
	if i < 0 || reported[prefix] || p.problems.Has(p.pools[i].path) {
		return
	}

	reported[prefix] = true
	g := p.pools[i]

	at, count := g.path+".devices", 1
	if j := slices.IndexFunc(g.demands, func(d demand) bool { return d.name == name }); j >= 0 {
		at, count = g.demands[j].path, g.demands[j].count
	}

	var others []string

	for _, other := range p.hostNames {
		used := 0

		for _, q := range p.pools {
			for _, n := range q.nodes {
				for _, device := range n.AllDevices() {
					if n.Host == other && device.Name == name {
						used++
					}
				}
			}
		}

		if other != host && len(p.devicesOn(other, name))-used >= count {
			others = append(others, other)
		}
	}

	kind := p.kinds[name].Kind

	remedy := fmt.Sprintf("use fewer machines, or add a %s to hosts[].%s", kind.noun(), kind.list())
	if len(others) > 0 {
		remedy = "use hosts with a free one: " + strings.Join(others, ", ")
	}

	p.problems.Add(at, name, "of %s %s; %s", host, why, remedy)
}
