package preflight

import (
	"fmt"
	"slices"
	"strings"

	"talos-proxmox/internal/errorhints"
	"talos-proxmox/internal/ownership"
	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/internal/spec"
)

// owner returns the owner in a machine's description: whether a stack created it, and whether it is this one.
func (c *checker) owner(vmid int) (owner ownership.Owner, made, ours bool) {
	owner, made = ownership.OwnerOf(c.site.Descriptions[vmid])

	return owner, made, owner.Matches(c.stack.owner())
}

func (s Stack) owner() ownership.Owner {
	return ownership.Owner{Name: s.Project + "/" + s.Name, ID: s.ID}
}

// checkVMIDs finds new machines and templates whose VMID is taken.
func (c *checker) checkVMIDs() {
	for _, conflict := range vmidConflicts(c.planned, c.site.Machines) {
		owner, made, ours := c.owner(conflict.vm.VMID)
		if conflict.template != "" && ours {
			continue // a build of an interrupted run, which the next run completes
		}

		_, read := c.site.Descriptions[conflict.vm.VMID]
		if !read && c.site.host(conflict.vm.Host).Status == proxmoxapi.HostOffline {
			c.checkUnreadVMID(conflict)

			continue
		}

		if conflict.template != "" {
			whose := ""
			if made {
				whose = ", of the stack " + owner.String()
			}

			c.problem(conflict.host, conflict.path, nil, "gives the template on %s the VMID %d, which %s on %s has%s: leave "+
				"that machine, and choose another firstVmid for the class",
				conflict.host, conflict.vm.VMID, conflict.vm.Name, conflict.vm.Host, whose)

			continue
		}

		c.problem(conflict.host, conflict.path, nil, "%s would get a VMID that is taken: %s",
			conflict.name, errorhints.Subject{
				Name: conflict.name, VMID: conflict.vm.VMID, Host: conflict.host, Stack: c.stack.Name,
				Holder: &errorhints.Holder{
					Name: conflict.vm.Name, Host: conflict.vm.Host, Owner: owner.String(), Ours: ours,
					Lost: owner.IsLost(c.stack.owner(), c.stack.Empty),
				},
			}.TakenAdvice())
	}
}

// checkUnreadVMID reports a machine with a taken VMID that cannot be read. A template of the same host is probably the
// stack's own.
func (c *checker) checkUnreadVMID(taken conflict) {
	if taken.template != "" && taken.host == taken.vm.Host {
		return // [checker.checkHosts] reports the host
	}

	remedy := "choose another firstVmid for the class"
	if taken.template == "" {
		remedy = fmt.Sprintf("set a free VMID for %s alone (nodes.%d.vmid)", taken.name, taken.number)
	}

	c.problem(taken.host, taken.path, nil, "%s would get VMID %d, which %s on %s has: that host is offline, so that nobody knows "+
		"whose it is: bring it back, or %s", taken.name, taken.vm.VMID, taken.vm.Name, taken.vm.Host, remedy)
}

// conflict is an existing machine that has the VMID or name of something new.
type conflict struct {
	vm                         proxmoxapi.Listed
	name, host, path, template string
	number                     int // of a machine in its pool, from 1
}

func vmidConflicts(p planned, machines []proxmoxapi.Listed) []conflict {
	byVMID := map[int]proxmoxapi.Listed{}
	for _, vm := range machines {
		byVMID[vm.VMID] = vm
	}

	var all []conflict

	for _, m := range p.machines {
		if vm, taken := byVMID[m.VMID]; m.new && taken {
			all = append(all, conflict{vm: vm, name: m.Name, host: m.Host, path: m.Path, number: m.Index + 1})
		}
	}

	for _, t := range p.templates {
		if vm, taken := byVMID[t.VMID]; !t.built && taken {
			all = append(all, conflict{vm: vm, name: t.Name, host: t.Host, path: t.path + ".firstVmid", template: t.Key})
		}
	}

	return all
}

// nameConflicts returns machines with another VMID and the name of a new machine. The stack's own machines are left
// out: the new machine replaces them.
func nameConflicts(p planned, machines []proxmoxapi.Listed) []conflict {
	var all []conflict

	for _, m := range p.machines {
		for _, vm := range machines {
			if _, own := p.stackMachines[vm.VMID]; m.new && !own && vm.Name == m.Name && vm.VMID != m.VMID {
				all = append(all, conflict{vm: vm, name: m.Name, host: m.Host, path: m.Path})
			}
		}
	}

	return all
}

// checkNames warns of machines with equal names, which Proxmox allows and people mistake for each other.
func (c *checker) checkNames() {
	for _, conflict := range nameConflicts(c.planned, c.site.Machines) {
		whose := "no stack made it"

		switch owner, made, ours := c.owner(conflict.vm.VMID); {
		case ours:
			whose = "this stack made it"
		case made:
			whose = "it belongs to the stack " + owner.String()
		}

		c.warn(conflict.host, conflict.path, nil, "%s would have the name of VM %d on %s as well, and %s: Proxmox allows "+
			"that, people mistake one for the other", conflict.name,
			conflict.vm.VMID, conflict.vm.Host, whose)
	}
}

// checkMappings finds devices whose name an existing mapping has.
func (c *checker) checkMappings() {
	for _, h := range c.plan.Hosts {
		for _, device := range h.AllDevices() {
			comment, taken := c.site.Mappings[device.MappingPath()]
			if device.Raw || !taken || slices.Contains(c.stack.Mappings, device.MappingPath()) {
				continue
			}

			path := h.DevicePath(device) + ".name"

			kind := "PCI"
			if device.Kind == spec.USBDevice {
				kind = "USB"
			}

			switch owner, made := ownership.OwnerOf(comment); {
			case owner.Matches(c.stack.owner()):
				c.problem(h.Name, path, device.Name, "has a %s mapping of this stack that the state does not have: "+
					"`talos-proxmox recover %[2]s` removes it if an interrupted run left it, and `talos-proxmox import %[2]s` adds "+
					"it to the state if that was lost", kind, c.stack.Name)
			case made:
				c.problem(h.Name, path, device.Name, "is a %s mapping of the stack %s: give the device another name "+
					"here and in the pools that use it", kind, owner)
			default:
				c.problem(h.Name, path, device.Name, "is a %s mapping that no stack made: give the device another name "+
					"here and in the pools that use it", kind)
			}
		}
	}
}

// checkPools finds missing resource pools. Pools that the credentials may not see are not checked.
func (c *checker) checkPools() {
	for _, m := range c.planned.machines {
		if m.ResourcePool != "" {
			c.checkPool(m.Host, m.Path+".resourcePool", m.ResourcePool)
		}
	}
}

func (c *checker) checkPool(host, path, name string) {
	if c.site.Pools != nil && !slices.Contains(c.site.Pools, name) {
		c.problem(host, path, name, "is not a resource pool (%s): correct the name, or make it with `pvesh create /pools --poolid %s`",
			available(c.site.Pools), name)
	}
}

func available(names []string) string {
	if len(names) == 0 {
		return "there are none"
	}

	return "there are " + strings.Join(names, ", ")
}
