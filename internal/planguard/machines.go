package planguard

import (
	"fmt"
	"slices"
	"strings"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/tokens"
	"talos-proxmox/internal/vmdiff"
)

// Machines returns the existing machines that the plan changes or replaces, sorted by name.
func (p *Preview) Machines() []vmdiff.MachineChanges {
	var all []vmdiff.MachineChanges

	for _, s := range p.Steps {
		if changed, ok := changedMachine(s); ok {
			all = append(all, changed)
		}
	}

	slices.SortStableFunc(all, func(a, b vmdiff.MachineChanges) int {
		return strings.Compare(a.Machine.Name, b.Machine.Name)
	})

	return all
}

// Describe describes what the plan does: machines that it creates, adopts and deletes, its effects on the others and on
// the APIs of clusters; see [vmdiff.Describe]. The plan of the stack file tells where the APIs are; nil = unknown.
func (p *Preview) Describe(plan *spec.Plan) []string {
	apis, clusters := map[string]vmdiff.API{}, map[string]string{} // by cluster; by control plane
	if plan != nil {
		apis = vmdiff.APIs(plan)
	}

	for _, s := range p.controlPlanes() {
		cluster := s.machine().Cluster
		clusters[strings.TrimSuffix(s.Name(), tokens.OfVM)] = cluster

		if plan == nil && s.Operation != Delete {
			api := apis[cluster]
			api.ControlPlanes++
			apis[cluster] = api
		}
	}

	restarting := map[string][]string{}

	for _, name := range p.restartedByConfiguration() {
		if cluster, ok := clusters[name]; ok {
			restarting[cluster] = append(restarting[cluster], name)
		}
	}

	return append(p.comingAndGoing(), vmdiff.Describe(p.Machines(), apis, restarting)...)
}

// comingAndGoing returns a line for the machines that the plan creates, adopts and deletes each.
func (p *Preview) comingAndGoing() (lines []string) {
	for _, kind := range []struct {
		operation Operation
		verb      string
	}{{Create, "created"}, {Import, "adopted"}, {Delete, "deleted"}} {
		var names []string

		for _, s := range p.Steps {
			if s.URN.Type() == tokens.VirtualMachine && s.Operation == kind.operation {
				names = append(names, strings.TrimSuffix(s.Name(), tokens.OfVM))
			}
		}

		slices.SortFunc(names, problem.CompareNatural)

		switch len(names) {
		case 0:
		case 1:
			lines = append(lines, names[0]+" is "+kind.verb)
		default:
			lines = append(lines, vmdiff.JoinNames(names)+" are "+kind.verb)
		}
	}

	return lines
}

// ChangedBeside returns what the plan does to machines other than one node's, sorted: to their VMs and configurations,
// and by upgrades of their clusters. To start a VM that is off changes nothing of it.
func (p *Preview) ChangedBeside(node string) (changes []string) {
	for _, s := range p.Steps {
		name, isConfiguration := strings.CutSuffix(s.Name(), tokens.OfConfiguration)
		if s.URN.Type() == tokens.VirtualMachine {
			name = strings.TrimSuffix(s.Name(), tokens.OfVM)
		}

		switch {
		case !s.changes(), name == node:
		case s.URN.Type() == tokens.VirtualMachine:
			if s.Operation != Update || !slices.Equal(s.Properties, []string{"started"}) {
				changes = append(changes, fmt.Sprintf("%s %s", s.Operation, s.Name()))
			}
		case s.URN.Type() == tokens.LocalCommand && isConfiguration:
			changes = append(changes, fmt.Sprintf("%s %s", s.Operation, s.Name()))
		}
	}

	for _, w := range p.Warnings {
		if w.IsUpgrade() && !strings.HasPrefix(w.Text, node+" ") {
			changes = append(changes, w.Text)
		}
	}

	slices.Sort(changes)

	return changes
}

// IsUpgrade reports whether a warning is about an upgrade of Talos or Kubernetes.
func (m Message) IsUpgrade() bool { return vmdiff.IsUpgrade(m.Text) }

// IsAboutAPI reports whether a message is about the availability of a cluster's API.
func (m Message) IsAboutAPI() bool { return vmdiff.IsAboutAPI(m.Text) }

// controlPlanes returns the steps of existing control planes' VMs.
func (p *Preview) controlPlanes() (steps []Step) {
	for _, s := range p.Steps {
		if s.URN.Type() == tokens.VirtualMachine && s.Old != nil && s.machine().ControlPlane {
			steps = append(steps, s)
		}
	}

	return steps
}

// machine returns the VM before the plan, as far as it can be read.
func (s Step) machine() vmdiff.Machine {
	m, _ := vmdiff.FromState(s.Old.Inputs) // a blinded part does not affect others

	return m
}

// changedMachine returns an update or replacement of a VM with its effects, by the program's own rules; properties
// unknown to them are judged by name.
func changedMachine(s Step) (vmdiff.MachineChanges, bool) {
	if s.URN.Type() != tokens.VirtualMachine || s.Old == nil || s.Operation != Update && s.Operation != Replace {
		return vmdiff.MachineChanges{}, false
	}

	before := s.Old.Outputs
	if len(before) == 0 {
		before = s.Old.Inputs
	}

	old, err := vmdiff.FromState(before)
	old.Name = strings.TrimSuffix(s.Name(), tokens.OfVM)
	changed := vmdiff.MachineChanges{Machine: old}

	if err == nil && s.New != nil {
		if wanted, err := vmdiff.FromState(s.New.Inputs); err == nil {
			changed.Changes = vmdiff.Compare(old, wanted)
		}
	}

	for _, property := range s.Properties {
		known := func(c vmdiff.Change) bool { return c.Property == property }
		if !slices.ContainsFunc(changed.Changes, known) {
			changed.Changes = append(
				changed.Changes, vmdiff.Change{Property: property, Effect: vmdiff.EffectOf(property), What: property},
			)
		}
	}

	if len(changed.Changes) == 0 {
		changed.Changes = []vmdiff.Change{{Effect: vmdiff.Restart, What: "unknown"}}
	}

	if s.Operation == Replace && changed.Effect() != vmdiff.Replace {
		changed.Changes = []vmdiff.Change{{Effect: vmdiff.Replace, What: strings.Join(s.Properties, ", ")}}
	}

	return changed, true
}
