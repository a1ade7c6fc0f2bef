package proposal

import "fmt"

// nextRange is the distance to the range of VMIDs that is tried next.
const nextRange = 10000

// chooseVMIDs keeps each role's default range of VMIDs if nothing is in it, otherwise the next one, 10000 further on.
func (p *planner) chooseVMIDs() {
	for _, role := range []Range{
		{"templates", 900, 999}, {"controlPlanes", 2000, 2999}, {"workers", 3000, 3999}, {"gpuWorkers", 4000, 4999},
	} {
		chosen := role

		for p.machinesIn(chosen) > 0 {
			chosen.First, chosen.Last = chosen.First+nextRange, chosen.Last+nextRange
		}

		if chosen != role {
			p.stack.Ranges = append(p.stack.Ranges, chosen)
			p.decide("VMIDs of "+role.Role, fmt.Sprintf("%d-%d", chosen.First, chosen.Last), "%d to %d, the default, are in use",
				role.First, role.Last)
		}
	}
}

// machinesIn returns how many machines have VMIDs of a range.
func (p *planner) machinesIn(r Range) int {
	count := 0

	for _, m := range p.inventory.Machines {
		if m.VMID >= r.First && m.VMID <= r.Last {
			count++
		}
	}

	return count
}
