package planguard

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource/urn"

	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/talos"
	"talos-proxmox/internal/tokens"
	"talos-proxmox/internal/vmdiff"
)

// Check finds the steps of a plan that lose what cannot be restored, or put a cluster at risk: the deletion or
// replacement of Talos secrets, the bootstrap or a data disk (of plain machines: any disk), of a template with linked
// clones, of a control plane that does not leave etcd first, or has the only copy of its data; the replacement of the
// only control plane of a cluster or of more than one; several machines (or the only one) that a refresh did not find;
// and what `up` would refuse. Steps on resources approved by name (or URN), or by the name of the VM's node, are left
// out, and those of which all losses are; unused are the approvals that match no step.
func Check(p *Preview, approved []string) (rejected []Step, unused []string) {
	g := guard{preview: p, byURN: map[urn.URN]Step{}}
	for _, s := range p.Steps {
		g.byURN[s.URN] = s
	}

	used := map[string]bool{}

	for _, s := range p.Steps {
		reasons := g.reasons(s)
		if len(reasons) == 0 {
			continue
		}

		lossesApproved := true

		for _, r := range reasons {
			s.Reasons, s.Losses = append(s.Reasons, r.text), append(s.Losses, r.loss)

			if slices.Contains(approved, r.loss) {
				used[r.loss] = true
			} else {
				lossesApproved = false
			}
		}

		if slices.Contains(s.Losses, "") {
			s.Losses, lossesApproved = nil, false
		}

		isApproved := lossesApproved

		for _, name := range []string{s.Name(), string(s.URN), strings.TrimSuffix(s.Name(), tokens.OfVM)} {
			if slices.Contains(approved, name) {
				used[name], isApproved = true, true
			}
		}

		if !isApproved {
			rejected = append(rejected, s)
		}
	}

	slices.SortFunc(rejected, func(a, b Step) int { return strings.Compare(a.Name(), b.Name()) })

	for _, name := range approved {
		if !used[name] {
			unused = append(unused, name)
		}
	}

	return rejected, unused
}

type guard struct {
	preview *Preview
	byURN   map[urn.URN]Step
}

// reason is why a step needs approval; loss is the name of what it loses, if that can be approved by itself.
type reason struct{ text, loss string }

// withoutLoss returns reasons that are no loss by name.
func withoutLoss(texts ...string) (reasons []reason) {
	for _, text := range texts {
		reasons = append(reasons, reason{text: text})
	}

	return reasons
}

// OfDevices follows the name of a node in that of the loss of what runs with its devices.
const OfDevices = "/devices"

func (g *guard) reasons(s Step) []reason {
	loses := s.Operation == Delete || s.Operation == Replace
	switch {
	case s.URN.Type() == tokens.VirtualMachine && s.Gone && s.Operation == Create:
		return withoutLoss(g.goneReasons()...)
	case s.URN.Type() == tokens.VirtualMachine:
		return g.machineReasons(s)
	case !loses:
		return nil
	case s.URN.Type() == tokens.Secrets:
		return withoutLoss("the cluster's certificate authorities and tokens are gone with it; no node and no client of the cluster can be " +
			"reached any more")
	case s.URN.Type() == tokens.LocalCommand && strings.HasSuffix(s.Name(), tokens.OfBootstrap) &&
		isChildOf(s.URN, tokens.TalosCluster):
		return withoutLoss("etcd is bootstrapped once in a cluster's life")
	case isChildOf(s.URN, tokens.GoldenTemplate): // its build
		return withoutLoss(g.templateReasons(s)...)
	default:
		return nil
	}
}

// isChildOf reports whether a resource's parent is a component of the type.
func isChildOf(u urn.URN, component string) bool {
	return strings.HasSuffix(string(u.QualifiedType()), component+"$"+string(u.Type()))
}

func (g *guard) machineReasons(s Step) []reason {
	if s.Old == nil || s.Operation == Same {
		return nil
	}

	changed, _ := changedMachine(s)
	machine := s.machine()

	node := strings.TrimSuffix(s.Name(), tokens.OfVM)

	var reasons []reason

	loses := s.Operation == Delete || s.Operation == Replace
	if machine.ControlPlane && loses {
		reasons = withoutLoss(g.controlPlaneReasons(s, machine.Cluster)...)
	}

	if s.Operation == Replace && len(machine.Devices) > 0 {
		reasons = append(reasons, reason{
			"it has devices of its host and is recreated: what runs on it ends, and what is on its disks is gone", node + OfDevices,
		})
	}

	// A node's system disk holds nothing that cannot be recreated; that of a plain machine may. A volume outlives it.
	for _, d := range machine.Disks {
		if loses && d.Volume == "" && (machine.Cluster == "" || d.Interface != spec.SystemDisk) {
			reasons = append(reasons, reason{fmt.Sprintf(
				"data disk %s (%d GiB on %s) is deleted with all that is on it", d.Interface, d.SizeGiB, d.Datastore,
			), node + "/" + d.Interface})
		}
	}

	if loses {
		reasons = append(reasons, g.localVolumeReasons(node)...)
	}

	for _, change := range changed.Changes {
		if change.Effect == vmdiff.Impossible {
			reasons = append(reasons, withoutLoss("`up` would end with an error: "+strings.TrimSpace(change.Value+" "+change.Why))...)
		}
	}

	return reasons
}

// localVolumeReasons returns what a deletion of a machine takes beside its data disks: directory volumes on its system
// disk, from its machine configuration, and volumes of its VMID that the program found on Proxmox. Which volumes pods
// have claimed there, no preview shows.
func (g *guard) localVolumeReasons(name string) (reasons []reason) {
	for _, s := range g.preview.Steps {
		if s.Name() != name+tokens.OfConfiguration || s.Old == nil {
			continue
		}

		for _, volume := range directoryVolumes(s) {
			reasons = append(reasons, reason{
				fmt.Sprintf("directory volume %s on its system disk is deleted with the local volumes of pods", volume), name + "/" + volume,
			})
		}
	}

	for _, w := range g.preview.Warnings {
		if volumes, found := strings.CutPrefix(w.Text, name+vmdiff.LostVolumesText); found {
			reasons = append(reasons, withoutLoss("volumes that the stack file does not name are deleted with it: "+volumes)...)
		}
	}

	return reasons
}

// directoryVolumes returns the directory volumes of a node's machine configuration in the state.
func directoryVolumes(s Step) []string {
	if s.URN.Type() == tokens.ConfigurationApply { // of a program before this one applied configurations itself
		var patches []string

		items, _ := s.Old.Inputs["configPatches"].([]any)
		for _, item := range items {
			if text, ok := item.(string); ok { // and no secret
				patches = append(patches, text)
			}
		}

		return talos.DirectoryVolumes(patches)
	}

	environment, _ := s.Old.Inputs["environment"].(map[string]any)
	volumes, _ := environment[tokens.VolumesVariable].(string)

	return strings.Fields(volumes)
}

// goneReasons returns the reasons against recreating a machine that a refresh did not find. A single one may be lost;
// if several are missing, or no other one was found, the refresh probably asked the wrong Proxmox or without
// privileges.
func (g *guard) goneReasons() []string {
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

// controlPlaneReasons returns the reasons against deleting or replacing a control plane. Control planes leave etcd one
// after the other, and only while the others are healthy, but no replacement waits until the previous one is back.
func (g *guard) controlPlaneReasons(s Step, cluster string) []string {
	description := fmt.Sprintf("it is a control plane of cluster %s and a member of its etcd", cluster)
	otherStays := false

	var replaced []string

	for _, other := range g.preview.controlPlanes() {
		switch {
		case other.machine().Cluster != cluster || other.Operation == Delete:
		case other.Operation == Replace:
			replaced = append(replaced, other.Name())
		default:
			otherStays = true
		}
	}

	slices.Sort(replaced)

	switch {
	case g.isClusterDeleted(cluster):
		return []string{description}
	case g.isWarnedOf(s, vmdiff.OnlyCopy+cluster):
		return []string{description + ", and has the only copy of its data, for which the other control planes wait: restore etcd " +
			"before (docs/recovery.md#the-majority-of-etcd-is-lost)"}
	case g.isWarnedOf(s, vmdiff.HasDeparted+cluster):
		return nil
	case !g.hasLeaveCommand(s):
		return []string{description + ", and nothing has it leave: the state is of an earlier version of this program; " +
			"first run `up` once without this change"}
	case s.Operation != Replace:
		return nil
	case !otherStays:
		return []string{description + ", and no other one stays: `up` would end with an error; add control planes first"}
	case len(replaced) > 1:
		return []string{fmt.Sprintf(
			"the plan replaces %d control planes of cluster %s at once (%s), which can lose etcd's majority: replace one in each run",
			len(replaced), cluster, strings.Join(replaced, ", "),
		)}
	default:
		return nil
	}
}

// isWarnedOf reports whether the program warns of a machine with this text.
func (g *guard) isWarnedOf(machine Step, text string) bool {
	about := strings.TrimSuffix(machine.Name(), tokens.OfVM) + text

	return slices.ContainsFunc(g.preview.Warnings, func(m Message) bool {
		return strings.HasPrefix(m.Text, about+" ") || strings.HasPrefix(m.Text, about+":")
	})
}

// isClusterDeleted reports whether the plan deletes the whole cluster.
func (g *guard) isClusterDeleted(cluster string) bool {
	return slices.ContainsFunc(g.preview.Steps, func(s Step) bool {
		return s.URN.Type() == tokens.Secrets && s.Name() == cluster+tokens.OfSecrets && s.Operation == Delete
	})
}

// hasLeaveCommand reports whether the state has the command with which a machine's node leaves its cluster.
func (g *guard) hasLeaveCommand(machine Step) bool {
	name := strings.TrimSuffix(machine.Name(), tokens.OfVM) + tokens.OfLeave

	return slices.ContainsFunc(g.preview.Steps, func(s Step) bool {
		return s.URN.Type() == tokens.LocalCommand && s.Name() == name && s.Old != nil
	})
}

// templateReasons finds linked clones on the template's disk that the plan does not delete.
func (g *guard) templateReasons(s Step) []string {
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

	if len(clones) == 0 {
		return nil
	}

	return []string{"linked clones live on its disk: " + strings.Join(clones, ", ")}
}
