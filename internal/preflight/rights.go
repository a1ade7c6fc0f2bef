package preflight

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"talos-proxmox/internal/permissions"
	"talos-proxmox/internal/spec"
)

func (c *checker) reportLoginError() {
	c.problem("", c.credentialsKey(), nil, "is refused (%s): compare its id, its secret and its expiry with Datacenter, "+
		"Permissions; docs/permissions.md makes a token", c.site.LoginError)
}

// credentialsKey returns the configuration key of the credentials.
func (c *checker) credentialsKey() string {
	if c.site.Identity != "" && !strings.Contains(c.site.Identity, "!") {
		return "proxmoxve:username"
	}

	return "proxmoxve:apiToken"
}

// major returns Proxmox VE's major version; 0 if unknown.
func (s *Site) major() int {
	text, _, _ := strings.Cut(s.Version, ".")
	number, _ := strconv.Atoi(text) // 0 with an error

	return number
}

func (c *checker) checkVersion() {
	switch major := c.site.major(); {
	case major == 0:
	case major < permissions.OldestPVE:
		c.problem("", "proxmoxve:endpoint", nil, "answers with Proxmox VE %s; upgrade it to %d or %d: pve%dto%d "+
			"--full shows what prevents it",
			c.site.Version, permissions.OldestPVE, permissions.NewestPVE, major, major+1)
	case major > permissions.NewestPVE:
		c.warn("", "proxmoxve:endpoint", nil, "answers with Proxmox VE %s, which is newer than this program: try "+
			"it on the lab of a newer version first", c.site.Version)
	default:
		c.fine("", "Proxmox VE %s answers at %s", c.site.Version, c.site.Endpoint)
	}
}

// need is a privilege that the plan needs on a path; any of the privileges is enough.
type need struct {
	privileges []string
	path       string
	or         string // another path where it is enough
}

// checkRights compares the token's privileges with those that the plan needs, by the table of docs/permissions.md.
func (c *checker) checkRights() {
	if c.site.Rights == nil {
		return
	}

	all := true

	for _, role := range permissions.Roles() {
		lacks := c.lacks(role)
		for _, path := range slices.Sorted(maps.Keys(lacks)) {
			all = false

			c.problem("", c.credentialsKey(), nil, "%s may not %s on %s: as root on a host, `%s` gives it the role %s%s; "+
				"docs/permissions.md has what is in the role",
				c.site.Identity, strings.Join(lacks[path].privileges, ", "), lacks[path].pathList(),
				c.grantCommand(path, role), role.ID, c.separatedTokenNote())
		}
	}

	if all {
		c.fine("", "%s may do what the plan needs", c.site.Identity)
	}

	if excess, unused := c.site.Rights.Excess(), c.site.Rights.Unused(); len(excess) > 0 {
		c.warn("", c.credentialsKey(), nil, "%s may make itself Administrator by %s: give it only the roles of docs/permissions.md, on their "+
			"paths, with `--propagate 0` where stated", c.site.Identity, strings.Join(excess, ", "))
	} else if len(unused) > 0 {
		c.warn("", c.credentialsKey(), nil, "%s has privileges that the program does not need: %s; give it only the roles of "+
			"docs/permissions.md", c.site.Identity, strings.Join(unused, ", "))
	}
}

func (c *checker) allowed(n need) bool {
	return c.site.Rights.Has(n.path, n.privileges...) || n.or != "" && c.site.Rights.Has(n.or, n.privileges...)
}

// lack is what is missing of a role.
type lack struct{ privileges, paths []string }

// lacks returns what is missing of a role, by the path in the documentation.
func (c *checker) lacks(role permissions.Role) map[string]lack {
	all := map[string]lack{}

	for _, n := range role.Needs {
		for _, wanted := range c.needs(n) {
			if c.allowed(wanted) {
				continue
			}

			l := all[n.Path]
			if !slices.Contains(l.privileges, wanted.privileges[0]) {
				l.privileges = append(l.privileges, wanted.privileges[0])
			}

			if !slices.Contains(l.paths, wanted.path) {
				l.paths = append(l.paths, wanted.path)
			}

			all[n.Path] = l
		}
	}

	return all
}

// pathList lists the first paths.
func (l lack) pathList() string {
	const limit = 3
	if len(l.paths) <= limit {
		return strings.Join(l.paths, ", ")
	}

	return fmt.Sprintf("%s and %d more paths", strings.Join(l.paths[:limit], ", "), len(l.paths)-limit)
}

func (c *checker) grantCommand(path string, role permissions.Role) string {
	user, _, separated := strings.Cut(c.site.Identity, "!")
	if !separated {
		return role.Grant(path, user, "")
	}

	return role.Grant(path, user, c.site.Identity)
}

// separatedTokenNote explains why a rule for the token alone is not enough.
func (c *checker) separatedTokenNote() string {
	if strings.Contains(c.site.Identity, "!") {
		return " (a separated token may only what its user may, too)"
	}

	return ""
}

// needs returns where the plan needs a privilege of the table; nowhere if the plan does not use it.
func (c *checker) needs(n permissions.Need) []need {
	switch privilege := n.Privilege; privilege {
	case "VM.Clone":
		return needsAt(c.planned.machines, templatePath, privilege)
	case "VM.Allocate":
		return c.needsOnMachines(func(m machine) bool { return m.new || c.planned.hasAccounts(m) }, privilege)
	case "VM.GuestAgent.Audit":
		agent := func(m machine) bool { return slices.Contains(m.Template.Extensions, "siderolabs/qemu-guest-agent") }

		return c.needsOnMachines(agent, permissions.NameOn(c.site.major(), privilege), "VM.GuestAgent.Unrestricted")
	case "VM.Migrate":
		return c.needsOnMachines(func(m machine) bool {
			running, exists := c.stack.Machines[m.VMID]

			return exists && m.HostPinned && running.Host != m.Host
		}, privilege)
	case "Datastore.AllocateTemplate":
		return c.needsOnImages(privilege)
	case "Datastore.AllocateSpace":
		return slices.Concat(c.needsOnDatastores(privilege), c.needsOnImages(privilege), c.needsOnStorageClasses(privilege))
	case "SDN.Use":
		return c.needsOnBridges(privilege)
	case "Sys.AccessNetwork":
		return c.needsOnHosts(privilege)
	case "Realm.AllocateUser", "User.Modify":
		return c.needsForAccounts(n.Path, privilege, anyAccount)
	case "Datastore.Audit":
		return c.needsOnStorageClasses(privilege)
	case "Sys.Modify":
		if n.Path != "/" {
			return c.needsForAccounts(n.Path, privilege, createsRoles)
		}

		if slices.ContainsFunc(c.planned.machines, func(m machine) bool { return m.new && m.StartupOrder > 0 }) {
			return []need{{privileges: []string{privilege}, path: "/"}}
		}

		return nil
	case "Mapping.Modify", "Mapping.Use":
		return c.needsOnMappings(privilege)
	case "Datastore.Allocate": // elsewhere only a later run may need it
		return c.needsOnStorageClasses(privilege)
	case "Pool.Allocate": // only a later run may need it
		return nil
	default:
		return c.needsOnMachines(func(machine) bool { return true }, privilege)
	}
}

// needsOnMachines returns needs on the VMs that match, or on their resource pools.
func (c *checker) needsOnMachines(match func(machine) bool, privileges ...string) []need {
	var needs []need

	for _, m := range c.planned.machines {
		if match(m) {
			n := need{privileges: privileges, path: fmt.Sprintf("/vms/%d", m.VMID)}
			if m.ResourcePool != "" {
				n.or = "/pool/" + m.ResourcePool
			}

			needs = append(needs, n)
		}
	}

	return needs
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

func (c *checker) needsOnImages(privilege string) []need {
	return needsAt(c.planned.images, func(i image) string { return "/storage/" + i.ImageDatastore }, privilege)
}

// needsOnDatastores returns needs on the datastores of machines' disks.
func (c *checker) needsOnDatastores(privilege string) (needs []need) {
	for _, m := range c.planned.machines {
		needs = append(needs, needsAt(m.Disks(), func(d spec.Disk) string { return "/storage/" + d.Datastore }, privilege)...)
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

	return needsAt(c.planned.images, func(i image) string { return "/nodes/" + i.Host }, privilege)
}

// needsOnBridges returns needs on bridges. It skips VNets: whoever sees one may use it, and the path of one that is not
// visible is unknown.
func (c *checker) needsOnBridges(privilege string) []need {
	var needs []need

	for _, m := range c.planned.machines {
		for _, nic := range m.cards() {
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

func (c *checker) needsOnMappings(privilege string) (needs []need) {
	for _, h := range c.plan.Hosts {
		needs = append(needs, needsAt(h.GPUs, func(gpu spec.GPU) string {
			switch {
			case gpu.Raw:
				return ""
			case privilege == "Mapping.Modify" && !slices.Contains(c.stack.Mappings, gpu.Name):
				return "/mapping/pci" // to create it
			default:
				return "/mapping/pci/" + gpu.Name
			}
		}, privilege)...)
	}

	return needs
}

// Roles returns the roles that a new stack with this plan needs: the program's own, and the roles of clusters' software
// that an administrator has to create.
func Roles(plan *spec.Plan) []permissions.Role {
	nothing := func(spec.Template) bool { return false }
	stack := Stack{
		Image: func(t spec.Template) string { return t.Key }, Downloaded: nothing, Built: nothing,
	}
	c := &checker{plan: plan, stack: stack, site: &Site{Rights: permissions.Granted{}}, planned: newPlanned(plan, stack)}

	roles := slices.DeleteFunc(permissions.Roles(), func(r permissions.Role) bool { return len(c.lacks(r)) == 0 })
	if slices.ContainsFunc(c.planned.accounts, usesExistingRoles) {
		roles = append(roles, permissions.KubernetesRoles()...)
	}

	return roles
}
