package planguard

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource/urn"

	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/tokens"
	"talos-proxmox/internal/vmdiff"
)

// Judge finds the steps of a plan that lose what cannot be had again, or that put a cluster at risk: Talos secrets, the
// bootstrap or a data disk deleted or replaced (of machines of no cluster, any disk), a template taken from linked
// clones, a control plane that goes without leaving etcd, the only one or more than one of a cluster replaced, several
// machines (or the only one) that a refresh did not find, and what `up` would refuse. Steps on resources approved by
// name (or URN), or by the name of the node a VM belongs to, are left out; unused are the approvals that fitted none.
func Judge(p *Preview, approved []string) (refused []Step, unused []string) {
	g := guard{preview: p, byURN: map[urn.URN]Step{}}
	for _, s := range p.Steps {
		g.byURN[s.URN] = s
	}

	used := map[string]bool{}

	for _, s := range p.Steps {
		if s.Why = g.judge(s); len(s.Why) == 0 {
			continue
		}

		ok := false

		for _, name := range []string{s.Name(), string(s.URN), strings.TrimSuffix(s.Name(), tokens.OfVM)} {
			if slices.Contains(approved, name) {
				used[name], ok = true, true
			}
		}

		if !ok {
			refused = append(refused, s)
		}
	}

	slices.SortFunc(refused, func(a, b Step) int { return strings.Compare(a.Name(), b.Name()) })

	for _, name := range approved {
		if !used[name] {
			unused = append(unused, name)
		}
	}

	return refused, unused
}

type guard struct {
	preview *Preview
	byURN   map[urn.URN]Step
}

func (g *guard) judge(s Step) []string {
	loses := s.Operation == Delete || s.Operation == Replace
	switch {
	case s.URN.Type() == tokens.VirtualMachine && s.Gone && s.Operation == Create:
		return g.judgeGone()
	case s.URN.Type() == tokens.VirtualMachine:
		return g.judgeMachine(s)
	case !loses:
		return nil
	case s.URN.Type() == tokens.Secrets:
		return []string{"the cluster's certificate authorities and tokens are gone with it; no node and no client of the cluster can be reached any more"}
	case s.URN.Type() == tokens.LocalCommand && strings.HasSuffix(s.Name(), tokens.OfBootstrap) &&
		under(s.URN, tokens.TalosCluster):
		return []string{"etcd is bootstrapped once in a cluster's life"}
	case s.URN.Type() == tokens.RemoteCommand && under(s.URN, tokens.GoldenTemplate):
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
	machine := s.machine()

	var why []string

	loses := s.Operation == Delete || s.Operation == Replace
	if machine.ControlPlane && loses {
		why = g.judgeControlPlane(s, machine.Cluster)
	}

	if s.Operation == Replace && len(machine.Devices) > 0 {
		why = append(why, "it has GPUs and is recreated: what runs on it ends, and what is on its disks is gone")
	}

	// A node's system disk holds nothing that is not made again; that of a machine of no cluster may.
	for _, d := range machine.Disks {
		if loses && (machine.Cluster == "" || d.Interface != spec.SystemDisk) {
			why = append(why, fmt.Sprintf(
				"data disk %s (%d GiB on %s) is deleted with all that is on it", d.Interface, d.SizeGiB, d.Datastore,
			))
		}
	}

	for _, change := range changed.Changes {
		if change.Effect == vmdiff.Impossible {
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
		case s.URN.Type() != tokens.VirtualMachine:
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
		"the refresh found %d of the stack's %d machines, and `up` would recreate %s, empty: is this the stack's Proxmox, and may "+
			"its token see them (VM.Audit)", found, found+len(gone), strings.Join(gone, ", "),
	)}
}

// judgeControlPlane judges a control plane that goes, for good or for another machine. Those that leave etcd before do
// so one after the other, and only where the others are healthy; but nothing has one replacement wait for the one
// before it to be back.
func (g *guard) judgeControlPlane(s Step, cluster string) []string {
	is := fmt.Sprintf("it is a control plane of cluster %s and a member of its etcd", cluster)
	stays := false

	var replaced []string

	for _, other := range g.preview.controlPlanes() {
		switch {
		case other.machine().Cluster != cluster || other.Operation == Delete:
		case other.Operation == Replace:
			replaced = append(replaced, other.Name())
		default:
			stays = true
		}
	}

	slices.Sort(replaced)

	switch {
	case g.goes(cluster):
		return []string{is}
	case !g.leaves(s):
		return []string{is + ", and nothing has it leave: the state is of an earlier version of this program; " +
			"run `up` once without this change before"}
	case s.Operation != Replace:
		return nil
	case !stays && !g.preview.showsSames():
		return []string{is + "; whether another one stays cannot be told: preview with --show-sames"}
	case !stays:
		return []string{is + ", and no other one stays: `up` would end with an error; add control planes before"}
	case len(replaced) > 1:
		return []string{fmt.Sprintf(
			"the plan replaces %d control planes of cluster %s at once (%s), which can lose etcd's majority: replace one in each run",
			len(replaced), cluster, strings.Join(replaced, ", "),
		)}
	default:
		return nil
	}
}

// goes says whether a whole cluster goes.
func (g *guard) goes(cluster string) bool {
	return slices.ContainsFunc(g.preview.Steps, func(s Step) bool {
		return s.URN.Type() == tokens.Secrets && s.Name() == cluster+tokens.OfSecrets && s.Operation == Delete
	})
}

// leaves says whether the state has the command that has a machine's node leave.
func (g *guard) leaves(machine Step) bool {
	name := strings.TrimSuffix(machine.Name(), tokens.OfVM) + tokens.OfLeave

	return slices.ContainsFunc(g.preview.Steps, func(s Step) bool {
		return s.URN.Type() == tokens.LocalCommand && s.Name() == name && s.Old != nil
	})
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

	for _, vm := range g.preview.Steps {
		if vm.URN.Type() != tokens.VirtualMachine || vm.Old == nil || vm.Operation == Delete {
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
	case !g.preview.showsSames():
		return []string{"whether it has linked clones cannot be told: preview with --show-sames"}
	default:
		return nil
	}
}
