package vmdiff

import (
	"fmt"
	"slices"
	"strings"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/spec"
)

// judgement holds what the rules look things up in.
type judgement struct {
	plan      *spec.Plan
	machines  []Machine
	byName    map[string]Machine
	byVMID    map[int]Machine
	byAddress map[string]Machine
	planned   map[string]spec.Node
	problems  problem.List
}

// Judge returns what a plan asks of running machines and cannot be had, else what it does to them that a plan's reader
// has to know, and has the plan follow them where their disks are attached. All creations and updates of a run come
// before its deletions, so that what a machine has is free for another one in a later run only. Making is that of the
// last run.
func Judge(plan *spec.Plan, machines []Machine, making map[string]string) (problems problem.List, warnings []string) {
	j := &judgement{
		plan: plan, machines: machines,
		byName:    map[string]Machine{},
		byVMID:    map[int]Machine{},
		byAddress: map[string]Machine{},
		planned:   map[string]spec.Node{},
	}
	for _, m := range machines {
		j.byName[m.Name], j.byVMID[m.VMID] = m, m
		if m.Address != "" {
			j.byAddress[m.Address] = m
		}
	}

	pools := map[string][]spec.Node{}

	var paths []string

	for _, m := range plan.Members() {
		if pools[m.Path] == nil {
			paths = append(paths, m.Path)
		}

		pools[m.Path] = append(pools[m.Path], m.Node)
		j.planned[m.Name] = m.Node
	}

	for _, path := range paths {
		nodes := pools[path]
		if !j.identities(path, nodes) && !j.placement(path, nodes) {
			j.devices(path, nodes)
		}

		j.disks(path, nodes)
	}

	j.kept(making)

	changes := Changes(plan, machines)
	j.refuse(changes)
	departures := j.departures()

	if len(j.problems) > 0 {
		return j.problems, nil
	}

	controlPlanes := map[string]int{}
	for _, cluster := range plan.Clusters {
		controlPlanes[cluster.Name] = len(cluster.ControlPlanes)
	}

	return nil, append(Describe(changes, controlPlanes), departures...)
}

// report adds what is wrong, the first of a path.
func (j *judgement) report(path string, value any, format string, arguments ...any) {
	j.add(problem.New(path, value, format, arguments...))
}

func (j *judgement) add(p problem.Problem) {
	if !slices.ContainsFunc(j.problems, func(earlier problem.Problem) bool { return earlier.Path == p.Path }) {
		j.problems = append(j.problems, p)
	}
}

// identities finds machines that would need the VMID or address of a running one, as after a change of a pool's or
// cluster's name.
func (j *judgement) identities(path string, nodes []spec.Node) bool {
	for _, n := range nodes {
		what := fmt.Sprintf("VMID %d", n.VMID)

		holder, held := j.byVMID[n.VMID]
		if !held || holder.Name == n.Name {
			address := n.Address.Addr().String()
			if holder, held = j.byAddress[address]; !held || holder.Name == n.Name {
				continue
			}

			what = "address " + address
		}

		if _, stays := j.planned[holder.Name]; stays {
			j.report(path, nil, "%s would get the %s of %s, which has it until the end of the run; choose another one, or make the change in two runs", n.Name, what, holder.Name)

			return true
		}

		at, value := path+".name", n.Pool
		if n.Cluster != "" && (holder.Cluster != n.Cluster || n.Role == spec.RoleControlPlane) {
			at, value = path[:strings.LastIndex(path, ".")]+".name", n.Cluster
		}

		j.report(at, value, "makes %s with the %s of %s, which runs. Running machines cannot be renamed: the names of their nodes and etcd "+
			"members and their MAC addresses follow from it. Keep the name; or put new machines beside them, with firstVmid and firstAddress of their own, and "+
			"remove the old ones in a later run", n.Name, what, holder.Name)

		return true
	}

	return false
}

// placement finds machines with devices that the plan has on another host than they are on: they cannot migrate, and
// would be recreated there.
func (j *judgement) placement(path string, nodes []spec.Node) bool {
	moved := ""

	var pins []string

	for _, n := range nodes {
		m, runs := j.byName[n.Name]
		if !runs || len(m.Devices) == 0 || n.HostPinned || !j.offers(m.Host, n) {
			continue
		}

		pins = append(pins, fmt.Sprintf(`"%d": {host: %s}`, n.Index+1, m.Host))
		if m.Host != n.Host && moved == "" {
			moved = fmt.Sprintf("%s has its GPU on %s, and would be recreated on %s", n.Name, m.Host, n.Host)
		}
	}

	if moved != "" {
		j.report(
			path+".nodes", nil, "%s. Set where the machines are, in addition to what is set there: nodes: {%s}", moved,
			strings.Join(pins, ", "),
		)
	}

	return moved != ""
}

// offers says whether a host still has GPUs for the machine.
func (j *judgement) offers(host string, n spec.Node) bool {
	return len(n.GPUs) > 0 && len(j.gpus(host, n.GPUs[0].Name)) >= len(n.GPUs)
}

func (j *judgement) gpus(host, name string) []spec.GPU {
	var gpus []spec.GPU

	for _, h := range j.plan.Hosts {
		for _, gpu := range h.GPUs {
			if h.Name == host && gpu.Name == name {
				gpus = append(gpus, gpu)
			}
		}
	}

	return gpus
}

// devices finds machines whose device another one has until the end of the run: they would not start.
func (j *judgement) devices(path string, nodes []spec.Node) {
	for _, n := range nodes {
		holder, held := j.holder(n)
		if !held {
			continue
		}

		remedy := fmt.Sprintf("take it from %s in its own run first", holder.Name)
		if _, stays := j.planned[holder.Name]; stays && n.GPUs[0].Raw {
			remedy = "give a new GPU its own name, for its own pool"
		}

		j.report(
			path+".gpu", n.GPUs[0].Name, "of %s would go to %s, and %s has it until the end of the run; %s",
			n.Host, n.Name, holder.Name, remedy,
		)

		return
	}
}

// holder returns the machine that has what the node needs. Of a mapping, Proxmox takes any device that is free when the
// machine starts.
func (j *judgement) holder(n spec.Node) (Machine, bool) {
	for _, gpu := range n.GPUs {
		if i := slices.IndexFunc(j.machines, func(m Machine) bool {
			return gpu.Raw && m.Name != n.Name && m.Host == n.Host && slices.Contains(m.Devices, Device{PCI: gpu.PCI})
		}); i >= 0 {
			return j.machines[i], true
		}
	}

	if len(n.GPUs) == 0 || n.GPUs[0].Raw {
		return Machine{}, false
	}

	name := n.GPUs[0].Name
	free := len(j.gpus(n.Host, name))

	var leaving []Machine

	for _, m := range j.machines {
		if has := m.uses(n.Host, name); has > 0 {
			free -= has

			if !wants(j.planned[m.Name], n.Host, name) {
				leaving = append(leaving, m)
			}
		}
	}

	for _, other := range j.planned {
		if wants(other, n.Host, name) {
			free -= max(0, len(other.GPUs)-j.byName[other.Name].uses(n.Host, name))
		}
	}

	if len(leaving) == 0 || free >= 0 || j.byName[n.Name].uses(n.Host, name) >= len(n.GPUs) {
		return Machine{}, false
	}

	return leaving[0], true
}

// wants says whether a node is to have GPUs of that name on the host.
func wants(n spec.Node, host, name string) bool {
	return n.Host == host && len(n.GPUs) > 0 && n.GPUs[0].Name == name
}

// uses returns how many devices of a mapping the machine has on a host.
func (m Machine) uses(host, mapping string) int {
	count := 0

	for _, device := range m.Devices {
		if m.Host == host && device.Mapping == mapping {
			count++
		}
	}

	return count
}

// disks puts the disks of running machines where they are attached, whatever the plan would do with a new machine, and
// finds stated interfaces that do not fit.
func (j *judgement) disks(path string, nodes []spec.Node) {
	for _, n := range nodes {
		m, runs := j.byName[n.Name]
		if !runs {
			continue
		}

		taken := map[string]int{}

		for i := range n.ExtraDisks {
			d, at := &n.ExtraDisks[i], fmt.Sprintf("%s.extraDisks[%d].interface", path, i)
			own := 1 + i

			d.Added = own >= len(m.Disks)
			if !d.Added {
				if d.InterfacePinned && d.Interface != m.Disks[own].Interface {
					j.report(at, d.Interface,
						"is not where %s has the disk, and nothing re-attaches it; set %s, or leave it out",
						n.Name, m.Disks[own].Interface)

					return
				}

				d.Interface = m.Disks[own].Interface
			}

			if other, twice := taken[d.Interface]; twice {
				j.report(at, d.Interface, "is where %s has extraDisks[%d]; choose another from virtio0 to virtio15", n.Name, other)

				return
			}

			taken[d.Interface], d.InterfacePinned = i, true
		}
	}
}
