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

// pool is a pool of machines with its place in the configuration.
type pool struct {
	PoolConfig
	path      string
	cluster   string // empty for machines of no cluster
	linked    bool   // machines are linked clones
	placed    bool   // nodes are told where they are
	network   Network
	name      string
	role      Role
	kind      RangeKind
	count     int
	placement string
	gpu       string // the name of its machines' GPUs; empty = they have none
	use       GPUUseConfig
	driver    Driver // empty without GPUs
	dedicated bool
	duplicate bool // its machines' names are another pool's, which is reported
	nodes     []Node
}

// ofCluster says whether the pool's machines run Talos in a cluster.
func (g *pool) ofCluster() bool { return g.kind != RangeMachines }

// prefix is what the names of the pool's machines begin with.
func (g *pool) prefix() string {
	if !g.ofCluster() {
		return g.name
	}

	return g.cluster + "-" + g.name
}

// planPool judges a pool and returns its machines in order of their index.
func (p *planner) planPool(g *pool) []Node {
	p.checkPool(g)
	own := p.ownSettings(g)
	extensible := p.prototype(g)

	g.nodes = make([]Node, g.count)
	for i := range g.nodes {
		n := extensible
		n.Index = i
		n.Name = g.prefix() + "-" + strconv.Itoa(i+1)
		n.Tags, n.ExtraDisks = slices.Clone(n.Tags), slices.Clone(n.ExtraDisks)
		n.Labels, n.Taints = maps.Clone(n.Labels), maps.Clone(n.Taints)
		n.Patches, n.GPUs = slices.Clone(n.Patches), slices.Clone(n.GPUs)
		p.applyOwn(g, &n, own[i])
		g.nodes[i] = n
	}

	p.planNames(g)
	p.planVMIDs(g, own)
	p.planAddresses(g, own)
	p.planMACs(g, own)
	p.planNICs(g)
	p.place(g, own)

	from := p.classOf(g)
	for i := range g.nodes {
		g.nodes[i].Template = p.onHost(from, g.nodes[i].Host)
	}

	return g.nodes
}

// prototype is a machine of the pool without anything of its own.
func (p *planner) prototype(g *pool) Node {
	template := p.classes[g.Template]

	n := Node{
		VM: VM{
			Path: g.path, Pool: g.name,
			Cores: g.Cores, MemoryMiB: g.MemoryMiB, DiskGiB: g.DiskGiB, Datastore: cmp.Or(g.Datastore, template.Datastore),
			VMSettings: g.VMSettings, Linked: g.linked,
		},
		Cluster: g.cluster, Role: g.role,
		Labels: p.labels(g.path+".labels", g.Labels, g),
		Taints: p.taints(g.path+".taints", g.Taints),
	}
	if g.Datastore == "" && template.path != "" {
		n.Own = map[string]string{"datastore": template.path + ".datastore"}
	}

	if g.gpu != "" {
		// Which devices they are is decided once all machines have their hosts.
		n.GPUs = slices.Repeat([]GPU{{Name: g.gpu}}, g.use.GPUsPerNode)
		n.TimeSlicing, n.Dedicated = g.use.TimeSlicing, g.dedicated
	}

	n.Secret = p.secretTexts(g.path, g.Labels, g.Taints, g.Patches)
	n.Tags = p.tags(g)
	n.ExtraDisks = p.extraDisks(g, n.Datastore)
	n.Patches = p.patches(g.path+".patches", g.Patches)

	return n
}

// ownNode is what a single machine states, with its path.
type ownNode struct {
	NodeConfig
	path string
}

// stated are the paths of what the machine sets for itself, by key.
func (o ownNode) stated() map[string]string {
	paths := map[string]string{}

	for _, key := range statedKeys(o.VMConfig) {
		paths[key] = o.path + "." + key
	}

	return paths
}

// ownSettings finds the machines that g.Nodes speaks of.
func (p *planner) ownSettings(g *pool) map[int]ownNode {
	own := map[int]ownNode{}

	for _, key := range slices.Sorted(maps.Keys(g.Nodes)) {
		at := join(g.path+".nodes", key)

		number, err := strconv.Atoi(strings.TrimPrefix(key, g.prefix()+"-"))
		switch {
		case err != nil || number < 1 || number > g.count || strings.ContainsAny(key, "+ "):
			p.problems.Add(at, nil, "is not a machine of the pool; %s", machinesOf(g))
		case own[number-1].path != "":
			p.problems.Add(at, nil, "is the machine of %s too; put both into one entry", own[number-1].path)
		default:
			own[number-1] = ownNode{g.Nodes[key], at}
		}
	}

	return own
}

func machinesOf(g *pool) string {
	switch g.count {
	case 0:
		return "it has none; remove the entry, or raise count"
	case 1:
		return fmt.Sprintf(`it has one: "1" (%s-1); choose it, or raise count`, g.prefix())
	default:
		return fmt.Sprintf(
			`it has "1" to "%d" (%s-1 to %[2]s-%[1]d); choose one of them, or raise count`, g.count, g.prefix(),
		)
	}
}

// applyOwn gives a machine what it sets for itself, except for its identity.
func (p *planner) applyOwn(g *pool, n *Node, own ownNode) {
	if own.path == "" {
		return
	}

	stated := own.stated()
	maps.Copy(stated, n.Own) // all machines of the pool share that
	n.Own = stated
	n.Cores, n.MemoryMiB, n.DiskGiB = cmp.Or(own.Cores, n.Cores), cmp.Or(
		own.MemoryMiB, n.MemoryMiB,
	), cmp.Or(own.DiskGiB, n.DiskGiB)
	p.checkSizes(own.path, g, own.Cores, own.MemoryMiB, own.DiskGiB)

	if labels := p.labels(own.path+".labels", own.Labels, g); len(labels) > 0 {
		if n.Labels == nil {
			n.Labels = map[string]string{}
		}

		maps.Copy(n.Labels, labels)
	}

	if n.Skip = own.Skip; n.Skip && g.role == RoleControlPlane {
		p.problems.Add(own.path+".skip", true, "is for workers, and this is a control plane, without which etcd is not whole; "+
			"remove skip, and repair the machine or replace it (docs/recovery.md)")
	}

	n.Patches = append(n.Patches, p.patches(own.path+".patches", own.Patches)...)
	n.Secret = n.Secret || p.secretTexts(own.path, own.Labels, nil, own.Patches)
}

// secretTexts says whether a machine configuration gets a text from below a path that is stored encrypted.
func (p *planner) secretTexts(path string, labels map[string]string, taints, patches []string) bool {
	return len(labels) > 0 && p.secrets.touch(path+".labels") || len(taints) > 0 && p.secrets.touch(path+".taints") ||
		len(patches) > 0 && p.secrets.touch(path+".patches")
}

// planNames claims the names, which must be unique in the stack.
func (p *planner) planNames(g *pool) {
	form := labelForm.pattern
	if g.duplicate || g.ofCluster() && !form.MatchString(g.cluster) || !form.MatchString(g.name) {
		return
	}

	const longest = 63
	if last := g.prefix() + "-" + strconv.Itoa(max(g.count, 1)); len(last) > longest && !p.problems.Has(g.path+".name") {
		p.problems.Add(
			g.path, nil, "makes the host name %s, longer than %d letters; shorten the cluster's or the pool's name", last,
			longest,
		)
	}

	for _, n := range g.nodes {
		p.names.take(n.Name, claim{owner: n.Name, group: g.path, path: g.path})
	}
}

// planVMIDs counts from the pool's first VMID.
func (p *planner) planVMIDs(g *pool, own map[int]ownNode) {
	r, known := p.ranges[g.kind]

	at := g.path + ".firstVmid"
	if !known || p.problems.Has(at) {
		return
	}

	first := cmp.Or(g.FirstVMID, r.First)
	if last := first + g.count - 1; g.count > 0 && (!r.Holds(first) || !r.Holds(last)) {
		p.problems.Add(
			at, first, "gives %s the VMIDs %d to %d, outside the range %s; choose another firstVmid, or a wider %s", g.prefix(),
			first, last, r, g.kind.path(),
		)

		return
	}

	for i := range g.nodes {
		by := claim{owner: g.nodes[i].Name, group: g.path, path: at, count: g.count, kind: g.kind}

		g.nodes[i].VMID = first + i
		if stated := own[i].VMID; stated != 0 {
			g.nodes[i].VMID = stated

			by.path, by.count = own[i].path+".vmid", 1
			if !r.Holds(stated) {
				p.problems.Add(by.path, stated, "is outside the range %s; choose another, or a wider %s", r, g.kind.path())

				continue
			}
		}

		p.vmids.take(g.nodes[i].VMID, by)
	}
}

// planMACs derives each machine's MAC from its name alone.
func (p *planner) planMACs(g *pool, own map[int]ownNode) {
	for i := range g.nodes {
		n := &g.nodes[i]
		n.MAC = mac(p.options.Stack, g.cluster, n.Name)

		by := claim{owner: n.Name, group: g.path, path: fmt.Sprintf("%s.nodes.%d.mac", g.path, i+1)}
		if stated := own[i].MAC; stated != "" {
			by.path = own[i].path + ".mac"

			hardware, err := net.ParseMAC(stated)
			if err != nil || len(hardware) != 6 || hardware[0]&1 == 1 {
				p.problems.Add(
					by.path, stated,
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

// mac returns a locally administered unicast MAC address.
func mac(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "/")))

	return net.HardwareAddr(append([]byte{0x02}, sum[:5]...)).String()
}
