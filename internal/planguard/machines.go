package planguard

import (
	"slices"
	"strings"

	"talos-proxmox/internal/tokens"
	"talos-proxmox/internal/vmdiff"
)

// Machines are the machines that are there and that the plan changes or replaces, in order of their names.
func (p *Preview) Machines() []vmdiff.Changed {
	var all []vmdiff.Changed

	for _, s := range p.Steps {
		if changed, is := changedMachine(s); is {
			all = append(all, changed)
		}
	}

	slices.SortStableFunc(all, func(a, b vmdiff.Changed) int { return strings.Compare(a.Machine.Name, b.Machine.Name) })

	return all
}

// Describe says what the plan does to machines that are there; see [vmdiff.Describe].
func (p *Preview) Describe() []string {
	var controlPlanes map[string]int

	if p.showsSames() { // any other preview does not show how many there are
		controlPlanes = map[string]int{}

		for _, s := range p.controlPlanes() {
			if s.Operation != Delete {
				controlPlanes[s.machine().Cluster]++
			}
		}
	}

	return vmdiff.Describe(p.Machines(), controlPlanes)
}

// showsSames says whether the preview shows resources that stay as they are.
func (p *Preview) showsSames() bool {
	return slices.ContainsFunc(p.Steps, func(s Step) bool {
		return s.Operation == Same && s.URN.Type() != tokens.Stack
	})
}

// controlPlanes are the steps of the VMs of control planes that are there.
func (p *Preview) controlPlanes() (steps []Step) {
	for _, s := range p.Steps {
		if s.URN.Type() == tokens.VirtualMachine && s.Old != nil && s.machine().ControlPlane {
			steps = append(steps, s)
		}
	}

	return steps
}

// machine is the VM as it is before the plan, with what can be read of it.
func (s Step) machine() vmdiff.Machine {
	m, _ := vmdiff.Read(s.Old.Inputs) // a part that is blinded hides no other

	return m
}

// changedMachine judges an update or a replacement of a VM by the rules that the program judges by, and what they do
// not know by the property alone.
func changedMachine(s Step) (vmdiff.Changed, bool) {
	if s.URN.Type() != tokens.VirtualMachine || s.Old == nil || s.Operation != Update && s.Operation != Replace {
		return vmdiff.Changed{}, false
	}

	before := s.Old.Outputs
	if len(before) == 0 {
		before = s.Old.Inputs
	}

	old, err := vmdiff.Read(before)
	old.Name = strings.TrimSuffix(s.Name(), tokens.OfVM)
	changed := vmdiff.Changed{Machine: old}

	if err == nil && s.New != nil {
		if wanted, err := vmdiff.Read(s.New.Inputs); err == nil {
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
