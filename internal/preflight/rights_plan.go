package preflight

import (
	"fmt"
	"slices"
	"strings"

	"talos-proxmox/internal/permissions"
	"talos-proxmox/internal/spec"
)

// needsOnMachines returns needs on the VMs that match, or on their resource pools.
func (c *checker) needsOnMachines(match func(machine) bool, privileges ...string) []need {
	var needs []need

	for _, m := range c.planned.machines {
		if match(m) {
			n := need{privileges: privileges, path: fmt.Sprintf("/vms/%d", m.VMID)}
			if m.ResourcePool != "" {
				n.or = []string{"/pool/" + m.ResourcePool}
			}

			needs = append(needs, n)
		}
	}

	return needs
}

// needsOnImports returns needs on the VMs of templates that are built through the API. They are never started, and have
// neither CD-ROM nor cloud-init drive.
func (c *checker) needsOnImports(privilege string) []need {
	if slices.Contains([]string{"VM.Config.CDROM", "VM.Config.Cloudinit", "VM.PowerMgmt"}, privilege) {
		return nil
	}

	return needsAt(c.planned.templates, func(t template) string {
		if t.built || t.Source != spec.SourceImport {
			return ""
		}

		return fmt.Sprintf("/vms/%d", t.VMID)
	}, privilege)
}

// needsAt returns needs on the path of each item; items with an empty path need nothing.
func needsAt[T any](list []T, path func(T) string, privileges ...string) []need {
	var needs []need

	for _, one := range list {
		if p := path(one); p != "" {
			needs = append(needs, need{privileges: privileges, path: p})
		}
	}

	return needs
}

// templatePath returns the path of the template that a new machine is cloned from; empty if there is none.
func templatePath(m machine) string {
	if !m.new || m.Template.VMID == 0 {
		return ""
	}

	return fmt.Sprintf("/vms/%d", m.Template.VMID)
}

// needsOnStorage returns the needs on the datastores that a path of the table stands for. Only a later run may need to
// delete images.
func (c *checker) needsOnStorage(n permissions.Need) []need {
	switch {
	case n.Path == permissions.OnDisks:
		return c.needsOnDatastores(n.Privilege)
	case n.Path == permissions.OnVolumes:
		return c.needsOnStorageClasses(n.Privilege)
	case n.Privilege == "Datastore.Allocate":
		return nil
	default:
		return c.needsOnImages(n.Privilege)
	}
}

func (c *checker) needsOnImages(privilege string) []need {
	return needsAt(c.planned.images, func(i template) string { return "/storage/" + i.ImageDatastore }, privilege)
}

// needsOnDatastores returns needs on the datastores of machines' disks.
func (c *checker) needsOnDatastores(privilege string) (needs []need) {
	for _, m := range c.planned.machines {
		needs = append(needs, needsAt(m.Disks(), func(d spec.Disk) string { return "/storage/" + d.Datastore }, privilege)...)
	}

	for _, t := range c.planned.templates {
		if t.Source == spec.SourceImport {
			needs = append(needs, need{privileges: []string{privilege}, path: "/storage/" + t.Datastore})
		}
	}

	return needs
}

// needsOnStorageClasses returns needs on the datastores of storage classes.
func (c *checker) needsOnStorageClasses(privilege string) (needs []need) {
	for _, a := range c.planned.accounts {
		for _, datastore := range a.Proxmox.Datastores() {
			needs = append(needs, need{privileges: []string{privilege}, path: "/storage/" + datastore})
		}
	}

	return needs
}

// needsOnHosts returns needs on hosts that download images. Sys.Audit with Sys.Modify on / allows downloads as well.
func (c *checker) needsOnHosts(privilege string) []need {
	if c.site.Rights.Has("/", "Sys.Audit") && c.site.Rights.Has("/", "Sys.Modify") {
		return nil
	}

	return needsAt(c.planned.images, func(i template) string { return "/nodes/" + i.Host }, privilege)
}

// needsOnBridges returns needs on bridges: those of network cards, and those that new machines inherit from their
// template, whose card is not tagged. It skips VNets: whoever sees one may use it, and the path of one that is not
// visible is unknown.
func (c *checker) needsOnBridges(privilege string) []need {
	var needs []need

	for _, m := range c.planned.machines {
		cards := m.cards()
		if templatePath(m) != "" {
			cards = append(cards, card{bridge: m.Template.Bridge})
		}

		for _, nic := range cards {
			if bridge, found := c.site.host(m.Host).bridge(nic.bridge); found && bridge.Type == typeVNet {
				continue
			}

			path := "/sdn/zones/localnetwork/" + nic.bridge
			if nic.vlan > 0 {
				path = fmt.Sprintf("%s/%d", path, nic.vlan)
			}

			needs = append(needs, need{privileges: []string{privilege}, path: path})
		}
	}

	return needs
}

// needsOnDatacentre returns needs for Proxmox' firewall in front of machines, for backup jobs, and for machines with
// high availability.
func (c *checker) needsOnDatacentre(n permissions.Need) []need {
	var used bool

	switch n.Call {
	case permissions.SeeFirewall:
		used = len(c.plan.ProxmoxFirewalls()) > 0
	case permissions.SeeBackupJobs:
		used = slices.ContainsFunc(c.plan.Machines, func(m spec.Machine) bool { return m.Backup })
	default:
		used = slices.ContainsFunc(c.planned.machines, func(m machine) bool { return m.HA != nil })
	}

	if !used {
		return nil
	}

	return []need{{privileges: []string{n.Privilege}, path: n.Path}}
}

// needsToMakeMappings returns the needs for creating and deleting mappings. Changes of existing ones are not known
// here.
func (c *checker) needsToMakeMappings(n permissions.Need) []need {
	planned := mappingsOf(c.plan)
	of := func(path string) bool { return strings.HasPrefix(path, n.Path+"/") }
	isNew := func(path string) bool { return of(path) && !slices.Contains(c.stack.Mappings, path) }
	isLeft := func(path string) bool { return of(path) && !slices.Contains(planned, path) }

	if !slices.ContainsFunc(planned, isNew) && !slices.ContainsFunc(c.stack.Mappings, isLeft) {
		return nil
	}

	return []need{{privileges: []string{n.Privilege}, path: n.Path}}
}

// mappingsOf returns the paths of a plan's PCI and USB mappings.
func mappingsOf(plan *spec.Plan) (paths []string) {
	for _, h := range plan.Hosts {
		for _, device := range h.AllDevices() {
			if !device.Raw {
				paths = append(paths, device.MappingPath())
			}
		}
	}

	return paths
}

// needsOnMappings returns needs on the mappings that a path of the table stands for.
func (c *checker) needsOnMappings(n permissions.Need) []need {
	above, _, _ := strings.Cut(n.Path, "<")
	mappings := slices.DeleteFunc(mappingsOf(c.plan), func(path string) bool { return !strings.HasPrefix(path, above) })

	return needsAt(mappings, func(path string) string { return path }, n.Privilege)
}

// PlacesOf returns the places of a plan, whether they exist or not.
func PlacesOf(plan *spec.Plan) permissions.Places {
	var p permissions.Places

	for _, h := range plan.Hosts {
		for _, device := range h.AllDevices() {
			switch {
			case device.Kind == spec.USBDevice:
				p.USBMappings = append(p.USBMappings, device.Name)
			case !device.Raw:
				p.Mappings = append(p.Mappings, device.Name)
			}
		}
	}

	for _, t := range plan.Templates {
		if t.Downloaded() {
			p.Images = append(p.Images, t.ImageDatastore)
		}
	}

	for _, t := range plan.Templates {
		if t.Source == spec.SourceImport {
			p.Disks = append(p.Disks, t.Datastore)
		}
	}

	for _, m := range plan.Members() {
		for _, d := range m.Disks() {
			p.Disks = append(p.Disks, d.Datastore)
		}
	}

	for _, cluster := range plan.Clusters {
		if cluster.Proxmox != nil {
			p.Volumes = append(p.Volumes, cluster.Proxmox.Datastores()...)
		}
	}

	return p
}

// rolesOf returns the program's own roles that a new stack with this plan needs.
func rolesOf(plan *spec.Plan) []permissions.Role {
	c := newChecker(plan)

	return slices.DeleteFunc(permissions.Roles(), func(r permissions.Role) bool { return len(c.lacks(r)) == 0 })
}

// Roles returns the roles that a new stack with this plan needs: the program's own, and the roles of clusters' software
// that an administrator has to create.
func Roles(plan *spec.Plan) []permissions.Role {
	roles := rolesOf(plan)
	if slices.ContainsFunc(newChecker(plan).planned.accounts, usesExistingRoles) {
		roles = append(roles, permissions.KubernetesRoles()...)
	}

	if slices.ContainsFunc(plan.Clusters, func(c spec.Cluster) bool { return len(c.Autoscaled) > 0 }) {
		roles = append(roles, permissions.AutoscalerRoles()...)
	}

	return roles
}

// newChecker returns the checker of a new stack whose account has no privileges.
func newChecker(plan *spec.Plan) *checker {
	nothing := func(spec.Template) bool { return false }
	stack := Stack{
		Image: func(t spec.Template) string { return t.Key }, Downloaded: nothing, Built: nothing,
	}

	return &checker{plan: plan, stack: stack, site: &Site{Rights: permissions.Granted{}}, planned: newPlanned(plan, stack)}
}
