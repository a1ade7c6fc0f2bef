package preview

import (
	"slices"
	"strings"

	"talos-proxmox/internal/running"
)

// Machines are the machines that are there and that the plan changes or replaces, in order of their names.
func (p *Preview) Machines() []running.Changed {
	var all []running.Changed

	for _, s := range p.Steps {
		if changed, is := changedMachine(s); is {
			all = append(all, changed)
		}
	}

	slices.SortStableFunc(all, func(a, b running.Changed) int { return strings.Compare(a.Machine.Name, b.Machine.Name) })

	return all
}

// Describe says what the plan does to machines that are there; see [running.Describe].
func (p *Preview) Describe() []string {
	controlPlanes, all := map[string]int{}, false

	for _, s := range p.Steps {
		if s.URN.Type() != typeMachine || s.Old == nil {
			all = all || s.Operation == Same && s.URN.Type() != typeStack
		} else if cluster, ok := controlPlaneOf(s); ok && s.Operation != Delete {
			controlPlanes[cluster]++
		}
	}

	if !all { // a preview without the resources that stay as they are does not show how many there are
		controlPlanes = nil
	}

	return running.Describe(p.Machines(), controlPlanes)
}

// changedMachine judges an update or a replacement of a VM by the rules that the program judges by, and what they do
// not know by the property alone.
func changedMachine(s Step) (running.Changed, bool) {
	if s.URN.Type() != typeMachine || s.Old == nil || s.Operation != Update && s.Operation != Replace {
		return running.Changed{}, false
	}

	before := s.Old.Outputs
	if len(before) == 0 {
		before = s.Old.Inputs
	}

	old, err := running.Read(before)
	old.Name = strings.TrimSuffix(s.Name(), "-vm")
	changed := running.Changed{Machine: old}

	if err == nil && s.New != nil {
		if wanted, err := running.Read(s.New.Inputs); err == nil {
			changed.Changes = running.Compare(old, wanted)
		}
	}

	for _, property := range s.Properties {
		known := func(c running.Change) bool { return c.Property == property }
		if !slices.ContainsFunc(changed.Changes, known) {
			changed.Changes = append(
				changed.Changes, running.Change{Property: property, Effect: running.EffectOf(property), What: property},
			)
		}
	}

	if len(changed.Changes) == 0 {
		changed.Changes = []running.Change{{Effect: running.Restart, What: "unknown"}}
	}

	if s.Operation == Replace && changed.Effect() != running.Replace {
		changed.Changes = []running.Change{{Effect: running.Replace, What: strings.Join(s.Properties, ", ")}}
	}

	return changed, true
}
