package spec

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
)

// pool is a pool of machines with its path in the configuration.
type pool struct {
	PoolConfig
	path        string
	cluster     string // empty for machines of no cluster
	linked      bool   // machines are linked clones
	hasTopology bool   // nodes are told where they are
	network     Network
	name        string
	role        Role
	kind        RangeKind
	count       int
	placement   string
	gpu         string // the name of its machines' GPUs; empty = they have none
	gpuUse      GPUUseConfig
	driver      Driver   // empty without GPUs
	demands     []demand // the devices of each machine
	dedicated   bool
	autoscale   *AutoscaleConfig // nil = no autoscaler adds machines
	repair      *RepairConfig    // nil = dead machines wait for a person
	prototype   Node             // a machine without its identity
	duplicate   bool             // its machines' names are another pool's, which is reported
	nodes       []Node
	allowed     []string       // the hosts on which its machines may be placed
	links       []namedNetwork // of additional devices, bonds and VLANs
}

// inCluster reports whether the pool's machines are nodes of a cluster.
func (g *pool) inCluster() bool { return g.kind != RangeMachines }

// namePrefix returns the prefix of the names of the pool's machines.
func (g *pool) namePrefix() string {
	if !g.inCluster() {
		return g.name
	}

	return g.cluster + "-" + g.name
}

// planPool plans a pool and returns its machines in order of their index.
func (p *planner) planPool(g *pool) []Node {
	p.checkPool(g)
	p.setDemands(g)
	overrides := p.poolOverrides(g)
	prototype := p.poolPrototype(g)
	g.prototype = prototype

	g.nodes = make([]Node, g.count)
	for i := range g.nodes {
		n := prototype
		n.Index = i
		n.Name = g.namePrefix() + "-" + strconv.Itoa(i+1)
		n.Tags, n.ExtraDisks = slices.Clone(n.Tags), slices.Clone(n.ExtraDisks)
		n.Labels, n.Taints = maps.Clone(n.Labels), maps.Clone(n.Taints)
		n.Patches, n.PatchPaths, n.GPUs = slices.Clone(n.Patches), slices.Clone(n.PatchPaths), slices.Clone(n.GPUs)
		n.Devices = slices.Clone(n.Devices)
		p.applyOverrides(g, &n, overrides[i])
		g.nodes[i] = n
	}

	p.planNames(g)
	p.planVMIDs(g, overrides)
	p.planAddresses(g, overrides)
	p.planMACs(g, overrides)
	p.planLinks(g)
	p.placePool(g, overrides)
	p.planHA(g)

	for i := range g.nodes {
		n := &g.nodes[i]
		n.Template = p.templateOnHost(p.machineClass(g, n.Devices), n.Host)
	}

	return g.nodes
}

// poolPrototype returns a machine of the pool without its identity and overrides.
func (p *planner) poolPrototype(g *pool) Node {
	template := p.classes[g.Template]

	n := Node{
		VM: VM{
			Path: g.path, Pool: g.name,
			Cores: g.Cores, MemoryMiB: g.MemoryMiB, DiskGiB: g.DiskGiB, Datastore: cmp.Or(g.Datastore, template.Datastore),
			VMSettings: g.VMSettings, Linked: g.linked,
		},
		Cluster: g.cluster, Role: g.role, TPM: g.TPM, Repair: p.planRepair(g),
		Labels: p.checkLabels(g.path+".labels", g.Labels, g),
		Taints: p.parseTaints(g.path+".taints", g.Taints),
	}
	n.OverridePaths = map[string]string{}

	if g.Datastore == "" && template.path != "" {
		n.OverridePaths["datastore"] = template.path + ".datastore"
	}

	if g.Network != nil {
		n.Network = &g.network
		for _, key := range keysWithValues(*g.Network) {
			n.OverridePaths["network."+key] = g.path + ".network." + key
		}
	}

	if g.gpu != "" {
		// assignDevices chooses the devices once all machines have hosts.
		n.GPUs = slices.Repeat([]Device{{Name: g.gpu}}, g.gpuUse.GPUsPerNode)
		n.TimeSlicing, n.Dedicated = g.gpuUse.TimeSlicing, g.dedicated
	}

	n.Labels = maps.Clone(n.Labels)
	p.requestDevices(g, &n, g.deviceNames())
	n.Secret = p.hasSecretTexts(g.path, g.Labels, g.Taints, g.Patches)
	n.Tags = p.poolTags(g)
	n.ExtraDisks = p.planDisks(g, n.Datastore)
	n.Patches, n.PatchPaths = p.splitPatches(g.path+".patches", g.Patches)

	return n
}

// nodeOverrides are the settings of a single machine, with their path.
type nodeOverrides struct {
	NodeConfig
	path string
}

// keyPaths returns the paths of the machine's own settings, by key.
func (o nodeOverrides) keyPaths() map[string]string {
	paths := map[string]string{}

	for _, key := range keysWithValues(o.VMConfig) {
		paths[key] = o.path + "." + key
	}

	return paths
}

// poolOverrides returns the overrides in g.Nodes, by index of the machine.
func (p *planner) poolOverrides(g *pool) map[int]nodeOverrides {
	overrides := map[int]nodeOverrides{}

	for _, key := range slices.Sorted(maps.Keys(g.Nodes)) {
		at := joinPath(g.path+".nodes", key)

		number, err := strconv.Atoi(strings.TrimPrefix(key, g.namePrefix()+"-"))
		switch {
		case err != nil || number < 1 || number > g.count || strings.ContainsAny(key, "+ "):
			p.problems.Add(at, nil, "is not a machine of the pool; %s", describeMachines(g))
		case overrides[number-1].path != "":
			p.problems.Add(at, nil, "is the machine of %s too; put both into one entry", overrides[number-1].path)
		default:
			overrides[number-1] = nodeOverrides{g.Nodes[key], at}
		}
	}

	return overrides
}

func describeMachines(g *pool) string {
	switch g.count {
	case 0:
		return "it has none; remove the entry, or raise count"
	case 1:
		return fmt.Sprintf(`it has one: "1" (%s-1); choose it, or raise count`, g.namePrefix())
	default:
		return fmt.Sprintf(
			`it has "1" to "%d" (%s-1 to %[2]s-%[1]d); choose one of them, or raise count`, g.count, g.namePrefix(),
		)
	}
}

// applyOverrides applies a machine's overrides, except for its identity.
func (p *planner) applyOverrides(g *pool, n *Node, overrides nodeOverrides) {
	if overrides.path == "" {
		return
	}

	paths := overrides.keyPaths()
	maps.Copy(paths, n.OverridePaths) // all machines of the pool share that
	n.OverridePaths = paths
	n.Cores, n.MemoryMiB = cmp.Or(overrides.Cores, n.Cores), cmp.Or(overrides.MemoryMiB, n.MemoryMiB)
	n.DiskGiB = cmp.Or(overrides.DiskGiB, n.DiskGiB)
	p.checkSizes(overrides.path, g, overrides.Cores, overrides.MemoryMiB, overrides.DiskGiB)

	if labels := p.checkLabels(overrides.path+".labels", overrides.Labels, g); len(labels) > 0 {
		if n.Labels == nil {
			n.Labels = map[string]string{}
		}

		maps.Copy(n.Labels, labels)
	}

	p.requestDevices(g, n, p.checkOwnDevices(g, overrides))

	if n.Skip = overrides.Skip; n.Skip && g.role == RoleControlPlane {
		p.problems.Add(overrides.path+".skip", true, "is for workers, and this is a control plane, a member of etcd; "+
			"remove skip, and repair the machine or replace it (docs/recovery.md)")
	}

	patches, patchPaths := p.splitPatches(overrides.path+".patches", overrides.Patches)
	n.Patches, n.PatchPaths = append(n.Patches, patches...), append(n.PatchPaths, patchPaths...)
	n.Secret = n.Secret || p.hasSecretTexts(overrides.path, overrides.Labels, nil, overrides.Patches)
}

// hasSecretTexts reports whether a machine configuration contains an encrypted text from below a path.
func (p *planner) hasSecretTexts(path string, labels map[string]string, taints, patches []string) bool {
	return len(labels) > 0 && p.secrets.overlaps(path+".labels") || len(taints) > 0 && p.secrets.overlaps(path+".taints") ||
		len(patches) > 0 && p.secrets.overlaps(path+".patches")
}

// planNames claims the names, which must be unique in the stack.
func (p *planner) planNames(g *pool) {
	form := labelFormat.pattern
	if g.duplicate || g.inCluster() && !form.MatchString(g.cluster) || !form.MatchString(g.name) {
		return
	}

	const longest = 63
	if last := g.namePrefix() + "-" + strconv.Itoa(max(g.count, 1)); len(last) > longest && !p.problems.Has(g.path+".name") {
		p.problems.Add(
			g.path, nil, "results in the host name %s, longer than %d characters; shorten the cluster's or the pool's name",
			last, longest,
		)
	}

	for _, n := range g.nodes {
		p.names.take(n.Name, claim{owner: n.Name, group: g.path, path: g.path})
	}
}

// planVMIDs assigns consecutive VMIDs from the pool's first.
func (p *planner) planVMIDs(g *pool, overrides map[int]nodeOverrides) {
	r, known := p.ranges[g.kind]

	at := g.path + ".firstVmid"
	if !known || p.problems.Has(at) {
		return
	}

	first := cmp.Or(g.FirstVMID, r.First)
	if last := first + g.count - 1; g.count > 0 && (!r.Contains(first) || !r.Contains(last)) {
		p.problems.Add(
			at, first, "gives %s the VMIDs %d to %d, outside the range %s; choose another firstVmid, or a wider %s", g.namePrefix(),
			first, last, r, g.kind.path(),
		)

		return
	}

	for i := range g.nodes {
		by := claim{owner: g.nodes[i].Name, group: g.path, path: at, count: g.count, kind: g.kind}

		g.nodes[i].VMID = first + i
		if vmid := overrides[i].VMID; vmid != 0 {
			g.nodes[i].VMID = vmid

			by.path, by.count = overrides[i].path+".vmid", 1
			if !r.Contains(vmid) {
				p.problems.Add(by.path, vmid, "is outside the range %s; choose another, or a wider %s", r, g.kind.path())

				continue
			}
		}

		p.vmids.take(g.nodes[i].VMID, by)
	}
}

// planMACs derives each machine's MAC only from names, so that other machines do not change it.
func (p *planner) planMACs(g *pool, overrides map[int]nodeOverrides) {
	for i := range g.nodes {
		n := &g.nodes[i]
		n.MAC = deriveMAC(p.options.Stack, g.cluster, n.Name)

		by := claim{owner: n.Name, group: g.path, path: fmt.Sprintf("%s.nodes.%d.mac", g.path, i+1)}
		if text := overrides[i].MAC; text != "" {
			by.path = overrides[i].path + ".mac"

			hardware, err := net.ParseMAC(text)
			if err != nil || len(hardware) != 6 || hardware[0]&1 == 1 {
				p.problems.Add(
					by.path, text,
					"is not the MAC address of a network card; write it as 02:00:00:00:00:01, with an even first number",
				)

				continue
			}

			n.MAC = hardware.String()
		}

		if !g.duplicate {
			p.macs.take(n.MAC, by)
		}
	}
}

// deriveMAC returns a locally administered unicast MAC address.
func deriveMAC(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "/")))

	return net.HardwareAddr(append([]byte{0x02}, sum[:5]...)).String()
}
