package preflight

import (
	"slices"
	"strings"

	"talos-proxmox/internal/errorhints"
	"talos-proxmox/internal/ownership"
	"talos-proxmox/internal/proxmoxapi"
)

// owner is what a machine in the way says of itself.
func (j *judge) owner(vmid int) (owner ownership.Owner, made, ours bool) {
	owner, made = ownership.OwnerOf(j.site.Owners[vmid])

	return owner, made, owner.Is(j.stack.owner())
}

func (s Stack) owner() ownership.Owner {
	return ownership.Owner{Name: s.Project + "/" + s.Name, ID: s.ID}
}

// vmids finds what is still to be made and whose VMID another machine has.
func (j *judge) vmids() {
	for _, held := range inTheWay(j.work, j.site.Machines) {
		owner, made, ours := j.owner(held.vm.VMID)
		if held.template != "" && ours {
			continue // an interrupted run's build, which the next run ends
		}

		if held.template != "" {
			whose := ""
			if made {
				whose = ", of the stack " + owner.String()
			}

			j.problem(held.host, held.path, nil, "gives the template on %s the VMID %d, which %s on %s has%s: leave "+
				"that machine, and choose another firstVmid for the class",
				held.host, held.vm.VMID, held.vm.Name, held.vm.Host, whose)

			continue
		}

		j.problem(held.host, held.path, nil, "%s would get a VMID that is taken: %s",
			held.name, errorhints.Subject{
				Name: held.name, VMID: held.vm.VMID, Host: held.host, Stack: j.stack.Name,
				Holder: &errorhints.Holder{
					Name: held.vm.Name, Host: held.vm.Host, Owner: owner.String(), Ours: ours,
					Lost: owner.IsLost(j.stack.owner(), j.stack.Blank),
				},
			}.Taken())
	}
}

// held is a VMID that is planned for something new and that a machine has.
type held struct {
	vm                         proxmoxapi.Listed
	name, host, path, template string
}

func inTheWay(w work, machines []proxmoxapi.Listed) []held {
	byVMID := map[int]proxmoxapi.Listed{}
	for _, vm := range machines {
		byVMID[vm.VMID] = vm
	}

	var all []held

	for _, m := range w.machines {
		if vm, taken := byVMID[m.VMID]; m.new && taken {
			all = append(all, held{vm: vm, name: m.Name, host: m.Host, path: m.Path})
		}
	}

	for _, t := range w.templates {
		if vm, taken := byVMID[t.VMID]; !t.built && taken {
			all = append(all, held{vm: vm, name: t.Name, host: t.Host, path: t.path + ".firstVmid", template: t.Key})
		}
	}

	return all
}

// namesakes are machines with another VMID and the name of one that is still to be made. One of the stack's own is
// replaced, and goes.
func namesakes(w work, machines []proxmoxapi.Listed) []held {
	var all []held

	for _, m := range w.machines {
		for _, vm := range machines {
			if _, own := w.own[vm.VMID]; m.new && !own && vm.Name == m.Name && vm.VMID != m.VMID {
				all = append(all, held{vm: vm, name: m.Name, host: m.Host, path: m.Path})
			}
		}
	}

	return all
}

// names warns of machines that would be mistaken for each other: Proxmox allows that.
func (j *judge) names() {
	for _, same := range namesakes(j.work, j.site.Machines) {
		whose := "no stack made it"

		switch owner, made, ours := j.owner(same.vm.VMID); {
		case ours:
			whose = "this stack made it"
		case made:
			whose = "it belongs to the stack " + owner.String()
		}

		j.warn(same.host, same.path, nil, "%s would have the name of VM %d on %s as well, and %s: Proxmox allows "+
			"that, people mistake one for the other", same.name,
			same.vm.VMID, same.vm.Host, whose)
	}
}

// mappings finds names of GPUs that someone else's PCI mapping has.
func (j *judge) mappings() {
	for _, h := range j.plan.Hosts {
		for _, gpu := range h.GPUs {
			comment, taken := j.site.Mappings[gpu.Name]
			if gpu.Raw || !taken || slices.Contains(j.stack.Mappings, gpu.Name) {
				continue
			}

			path := h.GPUPath(gpu) + ".name"

			switch owner, made := ownership.OwnerOf(comment); {
			case owner.Is(j.stack.owner()):
				j.problem(h.Name, path, gpu.Name, "has a PCI mapping of this stack that the state does not have: "+
					"`talos-proxmox recover %[1]s` removes it if an interrupted run left it, and `talos-proxmox import %[1]s` adds "+
					"it to the state if that was lost", j.stack.Name)
			case made:
				j.problem(h.Name, path, gpu.Name, "is a PCI mapping of the stack %s: give the GPU another name "+
					"here and in the pools that use it", owner)
			default:
				j.problem(h.Name, path, gpu.Name, "is a PCI mapping that no stack made: give the GPU another name "+
					"here and in the pools that use it")
			}
		}
	}
}

// pools finds resource pools that are not there; those that the credentials may not see are not known.
func (j *judge) pools() {
	if j.site.Pools == nil {
		return
	}

	for _, m := range j.work.machines {
		if m.ResourcePool != "" && !slices.Contains(j.site.Pools, m.ResourcePool) {
			j.problem(m.Host, m.Path+".resourcePool", m.ResourcePool, "is not a resource pool (%s): correct the name, "+
				"or make it with `pvesh create /pools --poolid %s`",
				thereAre(j.site.Pools), m.ResourcePool)
		}
	}
}

func thereAre(names []string) string {
	if len(names) == 0 {
		return "there are none"
	}

	return "there are " + strings.Join(names, ", ")
}
