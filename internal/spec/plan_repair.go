package spec

import "time"

// minRepairAfter is longer than Kubernetes takes to miss a node, and most machines to reboot.
const minRepairAfter = time.Minute

// Repair says when a dead worker may be replaced without asking.
type Repair struct {
	// After is how long its node must not have been Ready.
	After time.Duration
	// Max is how many machines of its pool one run replaces.
	Max int
	// LoseVolumes permits the loss of volumes on it.
	LoseVolumes bool `json:",omitempty"`
}

// planRepair returns nil if the machines of a pool wait for a person.
func (p *planner) planRepair(g *pool) *Repair {
	if g.repair == nil {
		return nil
	}

	planned := Repair{Max: g.repair.Max, LoseVolumes: g.repair.LoseVolumes}

	at := g.path + ".repair.after"
	if !p.checkFormat(at, g.repair.After, intervalFormat) {
		return &planned
	}

	var err error
	if planned.After, err = time.ParseDuration(g.repair.After); err != nil || planned.After < minRepairAfter {
		p.problems.Add(at, g.repair.After, "is too short for a machine that reboots; use at least 1m")
	}

	return &planned
}
