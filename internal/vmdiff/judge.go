package vmdiff

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/spec"
)

// checker contains the lookups of the checks, and collects problems.
type checker struct {
	plan      *spec.Plan
	machines  []Machine
	byName    map[string]Machine
	byVMID    map[int]Machine
	byAddress map[string]Machine
	planned   map[string]spec.Node
	problems  problem.List
}

// Check returns the problems of applying a plan to running machines, or else warnings about its effects on them. It
// sets the interfaces of their attached disks in the plan. All creations and updates of a run precede its deletions, so
// what a machine occupies is available to another one only in a later run. The settings are those with which the last
// run left its machines: see [CreationSettings].
func Check(plan *spec.Plan, machines []Machine, settings map[string]string) (problems problem.List, warnings []string) {
	j := &checker{
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

		if address, _, found := strings.Cut(m.AddressIPv6, "/"); found {
			j.byAddress[address] = m
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
		if !j.checkIdentities(path, nodes) && !j.checkPlacement(path, nodes) {
			j.checkDevices(path, nodes)
		}

		j.checkDisks(path, nodes)
	}

	j.checkImmutable(settings)

	changes := Changes(plan, machines)
	j.reportImpossible(changes)
	departures := j.checkDepartures()

	if len(j.problems) > 0 {
		return j.problems, nil
	}

	return nil, slices.Concat(
		Describe(changes, APIs(plan), nil), departures, j.movedVIPs(settings), j.endpointChanges(settings),
	)
}

// reportf adds a problem, unless its path has one.
func (j *checker) reportf(path string, value any, format string, arguments ...any) {
	j.add(problem.New(path, value, format, arguments...))
}

func (j *checker) add(p problem.Problem) {
	if !slices.ContainsFunc(j.problems, func(earlier problem.Problem) bool { return earlier.Path == p.Path }) {
		j.problems = append(j.problems, p)
	}
}

// checkIdentities reports machines that would need the VMID or address of a running one, for example after a pool or
// cluster was renamed.
func (j *checker) checkIdentities(path string, nodes []spec.Node) bool {
	for _, n := range nodes {
		what := fmt.Sprintf("VMID %d", n.VMID)

		holder, ok := j.byVMID[n.VMID]
		if !ok || holder.Name == n.Name {
			var address netip.Addr
			if holder, address, ok = j.addressHolder(n); !ok {
				continue
			}

			what = "address " + address.String()
		}

		if _, stays := j.planned[holder.Name]; stays {
			j.reportf(path, nil, "%s would get the %s of %s, which has it until the end of the run; choose another one, or make the change in two runs", n.Name, what, holder.Name)

			return true
		}

		at, value := path+".name", n.Pool
		if n.Cluster != "" && (holder.Cluster != n.Cluster || n.Role == spec.RoleControlPlane) {
			at, value = path[:strings.LastIndex(path, ".")]+".name", n.Cluster
		}

		j.reportf(at, value, "creates %s with the %s of %s, which runs. Running machines cannot be renamed: the names of their nodes and etcd "+
			"members and their MAC addresses depend on it. Keep the name; or add new machines with their own firstVmid and firstAddress, and "+
			"remove the old ones in a later run", n.Name, what, holder.Name)

		return true
	}

	return false
}

// addressHolder returns the other machine that has an address of a node.
func (j *checker) addressHolder(n spec.Node) (Machine, netip.Addr, bool) {
	for _, prefix := range []netip.Prefix{n.Address, n.AddressIPv6} {
		if holder, ok := j.byAddress[prefix.Addr().String()]; ok && holder.Name != n.Name {
			return holder, prefix.Addr(), true
		}
	}

	return Machine{}, netip.Addr{}, false
}

// checkPlacement reports machines with devices that the plan places on another host: they cannot migrate, and would be
// recreated there.
func (j *checker) checkPlacement(path string, nodes []spec.Node) bool {
	moved := ""

	var pins []string

	for _, n := range nodes {
		m, runs := j.byName[n.Name]
		if !runs || len(m.Devices) == 0 || n.HostPinned || !j.hasDevices(m.Host, n) {
			continue
		}

		pins = append(pins, fmt.Sprintf(`"%d": {host: %s}`, n.Index+1, m.Host))
		if m.Host != n.Host && moved == "" {
			moved = fmt.Sprintf("%s has its %s on %s, and would be recreated on %s", n.Name, noun(n), m.Host, n.Host)
		}
	}

	if moved != "" {
		j.reportf(
			path+".nodes", nil, "%s. Set where the machines are, in addition to what is set there: nodes: {%s}", moved,
			strings.Join(pins, ", "),
		)
	}

	return moved != ""
}

// noun names the devices of a node in messages.
func noun(n spec.Node) string {
	if len(n.Devices) == 0 {
		return "GPU"
	}

	return "devices"
}

// hasDevices reports whether a host in the plan has the machine's devices.
func (j *checker) hasDevices(host string, n spec.Node) bool {
	devices := n.AllDevices()

	return len(devices) > 0 && !slices.ContainsFunc(devices, func(d spec.Device) bool {
		return j.devicesOf(host, d.Name) < plannedDevices(n, n.Host, d.Name)
	})
}

// devicesOf returns how many devices of a name a host in the plan has.
func (j *checker) devicesOf(host, name string) int {
	count := 0

	for _, h := range j.plan.Hosts {
		for _, device := range h.AllDevices() {
			if h.Name == host && device.Name == name {
				count++
			}
		}
	}

	return count
}

// checkDevices reports machines whose device another one uses until the end of the run: they would not start.
func (j *checker) checkDevices(path string, nodes []spec.Node) {
	for _, n := range nodes {
		for _, device := range n.AllDevices() {
			holder, ok := j.deviceHolder(n, device)
			if !ok {
				continue
			}

			remedy := fmt.Sprintf("remove it from %s in a separate run first", holder.Name)
			if _, stays := j.planned[holder.Name]; stays && device.Raw {
				remedy = "give a new GPU its own name, for its own pool"
			}

			key := ".gpu"
			if device.Kind != spec.NVIDIAGPU {
				key = ".devices"
			}

			j.reportf(
				path+key, device.Name, "of %s would go to %s, and %s has it until the end of the run; %s",
				n.Host, n.Name, holder.Name, remedy,
			)

			return
		}
	}
}

// deviceHolder returns the machine that uses a device the node needs. Of a mapping, Proxmox takes any device that is
// free when the machine starts.
func (j *checker) deviceHolder(n spec.Node, device spec.Device) (Machine, bool) {
	if device.Raw {
		i := slices.IndexFunc(j.machines, func(m Machine) bool {
			return m.Name != n.Name && m.Host == n.Host && slices.Contains(m.Devices, Device{PCI: device.PCI})
		})
		if i < 0 {
			return Machine{}, false
		}

		return j.machines[i], true
	}

	free := j.devicesOf(n.Host, device.Name)

	var leaving []Machine

	for _, m := range j.machines {
		if has := m.deviceCount(n.Host, device.Name); has > 0 {
			free -= has

			if plannedDevices(j.planned[m.Name], n.Host, device.Name) == 0 {
				leaving = append(leaving, m)
			}
		}
	}

	for _, other := range j.planned {
		if planned := plannedDevices(other, n.Host, device.Name); planned > 0 {
			free -= max(0, planned-j.byName[other.Name].deviceCount(n.Host, device.Name))
		}
	}

	enough := j.byName[n.Name].deviceCount(n.Host, device.Name) >= plannedDevices(n, n.Host, device.Name)
	if len(leaving) == 0 || free >= 0 || enough {
		return Machine{}, false
	}

	return leaving[0], true
}

// plannedDevices returns how many devices of a name a node is planned with on the host.
func plannedDevices(n spec.Node, host, name string) int {
	count := 0

	for _, device := range n.AllDevices() {
		if n.Host == host && device.Name == name {
			count++
		}
	}

	return count
}

// deviceCount returns the number of devices of a mapping that the machine has on a host.
func (m Machine) deviceCount(host, mapping string) int {
	count := 0

	for _, device := range m.Devices {
		if m.Host == host && device.Mapping == mapping {
			count++
		}
	}

	return count
}

// checkDisks sets the interfaces of attached disks in the plan, whatever new machines get, and reports configured
// interfaces that conflict.
func (j *checker) checkDisks(path string, nodes []spec.Node) {
	for _, n := range nodes {
		m, runs := j.byName[n.Name]
		if !runs {
			continue
		}

		byInterface := map[string]int{}

		for i := range n.ExtraDisks {
			d, at := &n.ExtraDisks[i], fmt.Sprintf("%s.extraDisks[%d].interface", path, i)
			index := 1 + i

			d.Added = index >= len(m.Disks)
			if !d.Added {
				if d.InterfacePinned && d.Interface != m.Disks[index].Interface {
					j.reportf(at, d.Interface,
						"is not where %s has the disk, and nothing re-attaches it; set %s, or leave it out",
						n.Name, m.Disks[index].Interface)

					return
				}

				d.Interface = m.Disks[index].Interface
			}

			if other, duplicate := byInterface[d.Interface]; duplicate {
				j.reportf(at, d.Interface, "is where %s has extraDisks[%d]; choose another from virtio0 to virtio15", n.Name, other)

				return
			}

			byInterface[d.Interface], d.InterfacePinned = i, true
		}
	}
}
