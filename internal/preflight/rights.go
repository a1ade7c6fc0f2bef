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

// Versions of Proxmox VE that the program knows.
const (
	leastPVE = permissions.OldestPVE
	mostPVE  = permissions.NewestPVE
)

// keyToken is where what Proxmox says of the credentials belongs.
const keyToken = "proxmoxve:apiToken" //nolint:gosec // a key, not a token

func (j *judge) refused() {
	j.problem("", j.key(), nil, "is refused (%s): compare its id, its secret and its expiry with Datacenter, "+
		"Permissions; docs/permissions.md makes a token", j.site.Refused)
}

// key is the setting that the credentials are of.
func (j *judge) key() string {
	if j.site.Identity != "" && !strings.Contains(j.site.Identity, "!") {
		return "proxmoxve:username"
	}

	return keyToken
}

// major is the number before the dot; 0 = not known.
func (s *Site) major() int {
	text, _, _ := strings.Cut(s.Version, ".")
	number, _ := strconv.Atoi(text) // 0 with an error

	return number
}

func (j *judge) version() {
	switch major := j.site.major(); {
	case major == 0:
	case major < leastPVE:
		j.problem("", "proxmoxve:endpoint", nil, "answers with Proxmox VE %s; upgrade it to %d or %d: pve%dto%d "+
			"--full shows what prevents it",
			j.site.Version, leastPVE, mostPVE, major, major+1)
	case major > mostPVE:
		j.warn("", "proxmoxve:endpoint", nil, "answers with Proxmox VE %s, which is newer than this program: try "+
			"it on the lab of a newer version first", j.site.Version)
	default:
		j.fine("", "Proxmox VE %s answers at %s", j.site.Version, j.site.Endpoint)
	}
}

// need is what the plan must be allowed on a path; any of the privileges will do.
type need struct {
	privileges []string
	path       string
	or         string // another path that will do
}

// rights compares what the token may do with what the plan needs, by the table of docs/permissions.md.
func (j *judge) rights() {
	if j.site.Rights == nil {
		return
	}

	all := true

	for _, role := range permissions.Roles() {
		lacks := j.lacks(role)
		for _, path := range slices.Sorted(maps.Keys(lacks)) {
			all = false

			j.problem("", j.key(), nil, "%s may not %s on %s: as root on a host, `%s` gives it the role %s%s; "+
				"docs/permissions.md has what is in the role",
				j.site.Identity, strings.Join(lacks[path].privileges, ", "), lacks[path].where(),
				j.grant(path, role), role.ID, j.both())
		}
	}

	if all {
		j.fine("", "%s may do what the plan needs", j.site.Identity)
	}

	if excess, unused := j.site.Rights.Excess(), j.site.Rights.Unused(); len(excess) > 0 {
		j.warn("", j.key(), nil, "%s may make itself Administrator by %s: give it only the roles of docs/permissions.md, on their "+
			"paths, with `--propagate 0` where stated", j.site.Identity, strings.Join(excess, ", "))
	} else if len(unused) > 0 {
		j.warn("", j.key(), nil, "%s has privileges that the program does not need: %s; give it only the roles of "+
			"docs/permissions.md", j.site.Identity, strings.Join(unused, ", "))
	}
}

func (j *judge) allowed(n need) bool {
	return j.site.Rights.Has(n.path, n.privileges...) || n.or != "" && j.site.Rights.Has(n.or, n.privileges...)
}

// lack is what is not granted where a role is given.
type lack struct{ privileges, paths []string }

// lacks gathers what is missing of a role by the path of the documentation.
func (j *judge) lacks(role permissions.Role) map[string]lack {
	all := map[string]lack{}

	for _, n := range role.Needs {
		for _, wanted := range j.needs(n) {
			if j.allowed(wanted) {
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

// where names the first paths.
func (l lack) where() string {
	const most = 3
	if len(l.paths) <= most {
		return strings.Join(l.paths, ", ")
	}

	return fmt.Sprintf("%s and %d more paths", strings.Join(l.paths[:most], ", "), len(l.paths)-most)
}

func (j *judge) grant(path string, role permissions.Role) string {
	user, _, separated := strings.Cut(j.site.Identity, "!")
	if !separated {
		return role.Grant(path, user, "")
	}

	return role.Grant(path, user, j.site.Identity)
}

// both says why a token's own rule is not enough.
func (j *judge) both() string {
	if strings.Contains(j.site.Identity, "!") {
		return " (a separated token may only what its user may, too)"
	}

	return ""
}

// needs is where the plan needs a privilege of the table; nowhere, for what this plan does not do.
func (j *judge) needs(n permissions.Need) []need {
	switch privilege := n.Privilege; privilege {
	case "VM.Clone":
		return on(j.work.machines, cloned, privilege)
	case "VM.Allocate":
		return j.onMachines(func(m machine) bool { return m.new || j.work.admits(m) }, privilege)
	case "VM.GuestAgent.Audit":
		agent := func(m machine) bool { return slices.Contains(m.Template.Extensions, "siderolabs/qemu-guest-agent") }

		return j.onMachines(agent, permissions.On(j.site.major(), privilege), "VM.GuestAgent.Unrestricted")
	case "VM.Migrate":
		return j.onMachines(func(m machine) bool {
			running, there := j.stack.Machines[m.VMID]

			return there && m.HostPinned && running.Host != m.Host
		}, privilege)
	case "Datastore.AllocateTemplate":
		return j.onImages(privilege)
	case "Datastore.AllocateSpace":
		return slices.Concat(j.onDatastores(privilege), j.onImages(privilege), j.onClasses(privilege))
	case "SDN.Use":
		return j.onBridges(privilege)
	case "Sys.AccessNetwork":
		return j.onHosts(privilege)
	case "Realm.AllocateUser", "User.Modify":
		return j.onAccounts(n.Path, privilege, anyAccount)
	case "Datastore.Audit":
		return j.onClasses(privilege)
	case "Sys.Modify":
		if n.Path != "/" {
			return j.onAccounts(n.Path, privilege, makesRoles)
		}

		if slices.ContainsFunc(j.work.machines, func(m machine) bool { return m.new && m.StartupOrder > 0 }) {
			return []need{{privileges: []string{privilege}, path: "/"}}
		}

		return nil
	case "Mapping.Modify", "Mapping.Use":
		return j.onMappings(privilege)
	case "Datastore.Allocate": // otherwise for what a later run may do
		return j.onClasses(privilege)
	case "Pool.Allocate": // for what a later run may do
		return nil
	default:
		return j.onMachines(func(machine) bool { return true }, privilege)
	}
}

// onMachines is where some of the machines are; what they are allowed by their resource pool counts.
func (j *judge) onMachines(which func(machine) bool, privileges ...string) []need {
	var needs []need

	for _, m := range j.work.machines {
		if which(m) {
			n := need{privileges: privileges, path: fmt.Sprintf("/vms/%d", m.VMID)}
			if m.ResourcePool != "" {
				n.or = "/pool/" + m.ResourcePool
			}

			needs = append(needs, n)
		}
	}

	return needs
}

// on is where something of a list is; an empty path is nowhere.
func on[T any](list []T, path func(T) string, privileges ...string) []need {
	var needs []need

	for _, one := range list {
		if p := path(one); p != "" {
			needs = append(needs, need{privileges: privileges, path: p})
		}
	}

	return needs
}

// cloned leads to the template of a machine that is still to be made.
func cloned(m machine) string {
	if !m.new || m.Template.VMID == 0 {
		return ""
	}

	return fmt.Sprintf("/vms/%d", m.Template.VMID)
}

func (j *judge) onImages(privilege string) []need {
	return on(j.work.images, func(i image) string { return "/storage/" + i.ImageDatastore }, privilege)
}

// onDatastores is on those of the machines' disks.
func (j *judge) onDatastores(privilege string) (needs []need) {
	for _, m := range j.work.machines {
		needs = append(needs, on(m.Disks(), func(d spec.Disk) string { return "/storage/" + d.Datastore }, privilege)...)
	}

	return needs
}

// onClasses is on those of storage classes.
func (j *judge) onClasses(privilege string) (needs []need) {
	for _, a := range j.work.accounts {
		for _, datastore := range a.Proxmox.Datastores() {
			needs = append(needs, need{privileges: []string{privilege}, path: "/storage/" + datastore})
		}
	}

	return needs
}

// onHosts is on those that download. Who may change and see all of a host may do so, too.
func (j *judge) onHosts(privilege string) []need {
	if j.site.Rights.Has("/", "Sys.Audit") && j.site.Rights.Has("/", "Sys.Modify") {
		return nil
	}

	return on(j.work.images, func(i image) string { return "/nodes/" + i.Host }, privilege)
}

// onBridges leaves VNets out: who sees one may use it, and the path of one that is not seen is not known.
func (j *judge) onBridges(privilege string) []need {
	var needs []need

	for _, m := range j.work.machines {
		for _, c := range m.cards() {
			if bridge, found := j.site.host(m.Host).bridge(c.bridge); found && bridge.Type == typeVNet {
				continue
			}

			path := "/sdn/zones/localnetwork/" + c.bridge
			if c.vlan > 0 {
				path = fmt.Sprintf("%s/%d", path, c.vlan)
			}

			needs = append(needs, need{privileges: []string{privilege}, path: path})
		}
	}

	return needs
}

func (j *judge) onMappings(privilege string) (needs []need) {
	for _, h := range j.plan.Hosts {
		needs = append(needs, on(h.GPUs, func(gpu spec.GPU) string {
			switch {
			case gpu.Raw:
				return ""
			case privilege == "Mapping.Modify" && !slices.Contains(j.stack.Mappings, gpu.Name):
				return "/mapping/pci" // where one is made
			default:
				return "/mapping/pci/" + gpu.Name
			}
		}, privilege)...)
	}

	return needs
}

// Roles are those that a stack needs which has nothing yet: the program's own, and of clusters' software those that an
// administrator is to make.
func Roles(plan *spec.Plan) []permissions.Role {
	nothing := func(spec.Template) bool { return false }
	stack := Stack{
		Image: func(t spec.Template) string { return t.Key }, Downloaded: nothing, Built: nothing,
	}
	j := &judge{plan: plan, stack: stack, site: &Site{Rights: permissions.Granted{}}, work: newWork(plan, stack)}

	roles := slices.DeleteFunc(permissions.Roles(), func(r permissions.Role) bool { return len(j.lacks(r)) == 0 })
	if slices.ContainsFunc(j.work.accounts, existingRoles) {
		roles = append(roles, permissions.KubernetesRoles()...)
	}

	return roles
}
