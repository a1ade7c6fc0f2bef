package preview

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource/urn"

	"talos-proxmox/internal/running"
	"talos-proxmox/internal/spec"
)

// Types of resources that the guard knows.
const (
	typeStack     = "pulumi:pulumi:Stack"
	typeMachine   = "proxmoxve:VM/virtualMachine:VirtualMachine"
	typeSecrets   = "talos:machine/secrets:Secrets" //nolint:gosec // a type
	typeLocal     = "command:local:Command"
	typeRemote    = "command:remote:Command"
	typeTemplate  = "talos-proxmox:template:GoldenTemplate"
	typeCluster   = "talos-proxmox:cluster:TalosCluster"
	tagController = "controlplane"
	tagCluster    = "cluster-"
)

// Endings of the names of a machine, of the command that has its node leave, and of a cluster's secrets.
const (
	suffixMachine = "-vm"
	suffixLeave   = "-leave"
	suffixSecrets = "-secrets"
)

// Finding is a step that no one should take without having said so.
type Finding struct {
	Resource  string // its name, which is what is approved
	URN       urn.URN
	Operation Operation
	Why       []string // what would be lost
}

// String is the finding as one sentence.
func (f Finding) String() string {
	return fmt.Sprintf("%s %s: %s", f.Operation, f.Resource, strings.Join(f.Why, "; "))
}

// Judge finds the steps of a plan that lose what cannot be had again, or that put a cluster at risk: Talos secrets, the
// bootstrap or a data disk deleted or replaced (of machines of no cluster, any disk), a template taken from linked
// clones, a control plane that goes without leaving etcd, the only one or more than one of a cluster replaced, several
// machines (or the only one) that a refresh did not find, and what `up` would refuse. Steps on resources approved by
// name (or URN), or by the name of the node a VM belongs to, are left out; unused are the approvals that fitted no
// finding.
func Judge(p *Preview, approved []string) (findings []Finding, unused []string) {
	g := guard{preview: p, byURN: map[urn.URN]Step{}}
	for _, s := range p.Steps {
		g.byURN[s.URN] = s
	}

	for _, s := range p.Steps {
		if why := g.judge(s); len(why) > 0 {
			g.findings = append(g.findings, Finding{Resource: s.Name(), URN: s.URN, Operation: s.Operation, Why: why})
		}
	}

	slices.SortFunc(g.findings, func(a, b Finding) int { return strings.Compare(a.Resource, b.Resource) })

	used := map[string]bool{}

	for _, f := range g.findings {
		ok := false

		for _, name := range []string{f.Resource, string(f.URN), strings.TrimSuffix(f.Resource, "-vm")} {
			if slices.Contains(approved, name) {
				used[name], ok = true, true
			}
		}

		if !ok {
			findings = append(findings, f)
		}
	}

	for _, name := range approved {
		if !used[name] {
			unused = append(unused, name)
		}
	}

	return findings, unused
}

type guard struct {
	preview  *Preview
	byURN    map[urn.URN]Step
	findings []Finding
}

func (g *guard) judge(s Step) []string {
	loses := s.Operation == Delete || s.Operation == Replace
	switch {
	case s.URN.Type() == typeMachine && s.Gone && s.Operation == Create:
		return g.judgeGone()
	case s.URN.Type() == typeMachine:
		return g.judgeMachine(s)
	case !loses:
		return nil
	case s.URN.Type() == typeSecrets:
		return []string{"the cluster's certificate authorities and tokens are gone with it; no node and no client of the cluster can be reached any more"}
	case s.URN.Type() == typeLocal && strings.HasSuffix(s.Name(), "-bootstrap") && under(s.URN, typeCluster):
		return []string{"etcd is bootstrapped once in a cluster's life"}
	case s.URN.Type() == typeRemote && under(s.URN, typeTemplate):
		return g.judgeTemplate(s)
	default:
		return nil
	}
}

// under tells whether a resource has a component of the type right above it.
func under(u urn.URN, component string) bool {
	return strings.HasSuffix(string(u.QualifiedType()), component+"$"+string(u.Type()))
}

func (g *guard) judgeMachine(s Step) []string {
	if s.Old == nil || s.Operation == Same {
		return nil
	}

	changed, _ := changedMachine(s)

	var why []string

	loses := s.Operation == Delete || s.Operation == Replace
	if cluster, ok := controlPlaneOf(s); ok && loses {
		why = g.judgeControlPlane(s, cluster)
	}

	if devices, _ := s.Old.Inputs["hostpcis"].([]any); s.Operation == Replace && len(devices) > 0 {
		why = append(why, "it has GPUs and is recreated: what runs on it ends, and what is on its disks is gone")
	}

	// A node's system disk holds nothing that is not made again; that of a machine of no cluster may.
	cluster, _ := controlPlaneOf(s)
	for _, d := range disksOf(s.Old) {
		if loses && (cluster == "" || d.name != spec.SystemDisk) {
			why = append(
				why, fmt.Sprintf("data disk %s (%v GiB on %s) is deleted with all that is on it", d.name, d.size, d.datastore),
			)
		}
	}

	for _, change := range changed.Changes {
		if change.Effect == running.Impossible {
			why = append(why, "`up` would end with an error: "+strings.TrimSpace(change.Value+" "+change.Why))
		}
	}

	return why
}

// judgeGone judges a machine that a refresh did not find. One may be lost and is made anew; where several are, or no
// other one was found, whoever was asked is more likely not the one who has them.
func (g *guard) judgeGone() []string {
	var gone []string

	found := 0

	for _, s := range g.preview.Steps {
		switch {
		case s.URN.Type() != typeMachine:
		case s.Gone:
			gone = append(gone, s.Name())
		case s.Old != nil:
			found++
		}
	}

	if len(gone) == 1 && found > 0 {
		return nil
	}

	slices.Sort(gone)

	return []string{fmt.Sprintf(
		"the refresh found %d of the stack's %d machines, and `up` would make %s anew, empty: is this the stack's Proxmox, and may "+
			"its token see them (VM.Audit)", found, found+len(gone), strings.Join(gone, ", "),
	)}
}

// judgeControlPlane judges a control plane that goes, for good or for another machine. Those that leave etcd before do
// so one after the other, and only where the others are healthy; but nothing has one replacement wait for the one
// before it to be back.
func (g *guard) judgeControlPlane(s Step, cluster string) []string {
	is := fmt.Sprintf("it is a control plane of cluster %s and a member of its etcd", cluster)

	switch stay, all := g.staying(cluster); {
	case g.goes(cluster):
		return []string{is}
	case !g.leaves(s):
		return []string{is + ", and nothing has it leave: the state is of an earlier version of this program; " +
			"run `up` once without this change before"}
	case s.Operation != Replace:
		return nil
	case len(stay) == 0 && !all:
		return []string{is + "; whether another one stays cannot be told: preview with --show-sames"}
	case len(stay) == 0:
		return []string{is + ", and no other one stays: `up` would end with an error; add control planes before"}
	}

	if replaced := g.replaced(cluster); len(replaced) > 1 {
		return []string{fmt.Sprintf(
			"the plan replaces %d control planes of cluster %s at once (%s), which can lose etcd's majority: replace one in each run",
			len(replaced), cluster, strings.Join(replaced, ", "),
		)}
	}

	return nil
}

// goes says whether a whole cluster goes.
func (g *guard) goes(cluster string) bool {
	return slices.ContainsFunc(g.preview.Steps, func(s Step) bool {
		return s.URN.Type() == typeSecrets && s.Name() == cluster+suffixSecrets && s.Operation == Delete
	})
}

// leaves says whether the state has the command that has a machine's node leave.
func (g *guard) leaves(machine Step) bool {
	name := strings.TrimSuffix(machine.Name(), suffixMachine) + suffixLeave

	return slices.ContainsFunc(g.preview.Steps, func(s Step) bool {
		return s.URN.Type() == typeLocal && s.Name() == name && s.Old != nil
	})
}

// staying are the control planes of a cluster whose machines stay; all says whether the preview shows those that do not
// change at all.
func (g *guard) staying(cluster string) (names []string, all bool) {
	for _, s := range g.preview.Steps {
		all = all || s.Operation == Same && s.URN.Type() != typeStack

		if s.URN.Type() != typeMachine || s.Old == nil || s.Operation == Delete || s.Operation == Replace {
			continue
		}

		if of, ok := controlPlaneOf(s); ok && of == cluster {
			names = append(names, s.Name())
		}
	}

	return names, all
}

// replaced are the control planes of a cluster whose machines are replaced.
func (g *guard) replaced(cluster string) []string {
	var names []string

	for _, s := range g.preview.Steps {
		if s.URN.Type() != typeMachine || s.Old == nil || s.Operation != Replace {
			continue
		}

		if of, ok := controlPlaneOf(s); ok && of == cluster {
			names = append(names, s.Name())
		}
	}

	slices.Sort(names)

	return slices.Compact(names)
}

// controlPlaneOf returns the cluster of a control plane's VM, by the tags that every machine of the program has.
func controlPlaneOf(s Step) (cluster string, ok bool) {
	tags, _ := s.Old.Inputs["tags"].([]any)
	for _, tag := range tags {
		text, _ := tag.(string)
		if name, found := strings.CutPrefix(text, tagCluster); found {
			cluster = name
		}

		ok = ok || text == tagController
	}

	return cluster, ok
}

type disk struct {
	name, datastore string
	size            any // GiB
}

func disksOf(state *State) []disk {
	var disks []disk

	list, _ := state.Inputs["disks"].([]any)
	for _, item := range list {
		fields, _ := item.(map[string]any)
		name, _ := fields["interface"].(string)
		datastore, _ := fields["datastoreId"].(string)
		disks = append(disks, disk{name, datastore, fields["size"]})
	}

	return disks
}

// judgeTemplate finds the linked clones that live on the template's disk and outlive this plan.
func (g *guard) judgeTemplate(s Step) []string {
	var vmid any

	if s.Old != nil {
		if parent := g.byURN[s.Old.Parent]; parent.Old != nil {
			vmid = parent.Old.Outputs["vmid"]
		}
	}

	var clones []string

	unchanged := false
	for _, vm := range g.preview.Steps {
		unchanged = unchanged || vm.Operation == Same && vm.URN.Type() != typeStack
		if vm.URN.Type() != typeMachine || vm.Old == nil || vm.Operation == Delete {
			continue
		}

		clone, _ := vm.Old.Inputs["clone"].(map[string]any)
		if full, _ := clone["full"].(bool); clone != nil && !full && (vmid == nil || clone["vmId"] == vmid) {
			clones = append(clones, vm.Name())
		}
	}

	slices.Sort(clones)

	switch {
	case len(clones) > 0:
		return []string{"linked clones live on its disk: " + strings.Join(clones, ", ")}
	case !unchanged:
		return []string{"whether it has linked clones cannot be told: preview with --show-sames"}
	default:
		return nil
	}
}
