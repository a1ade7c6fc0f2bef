package preflight

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"talos-proxmox/internal/permissions"
	"talos-proxmox/internal/proxmoxapi"
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

	for _, i := range c.planned.images {
		if i.Source == spec.SourceImport && !proxmoxapi.ImportsImages(c.site.Version) {
			c.problem("", i.path+".source", string(i.Source), "needs Proxmox VE %s, and %s answers: upgrade it, or set source: image or "+
				"source: iso", proxmoxapi.FirstImport, c.site.Version)
		}
	}
}

// need is a privilege that the plan needs on a path; any of the privileges is enough.
type need struct {
	privileges []string
	path       string
	or         []string // other paths where it is enough
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

			c.problem("", c.credentialsKey(), nil, "%s may not %s on %s: as root on a host, %s; docs/permissions.md has what is in the role",
				c.site.Identity, strings.Join(lacks[path].privileges, ", "), lacks[path].pathList(),
				c.grant(path, role, lacks[path]))
		}
	}

	if all {
		c.fine("", "%s may do what the plan needs", c.site.Identity)
	}

	c.checkEscalations()
}

// checkEscalations reports privileges that reach further than the documented roles on the stack's own paths, and
// documented ones with which the account can become root.
func (c *checker) checkEscalations() {
	if excess, unused := c.site.Rights.Excess(), c.site.Rights.Unused(); len(excess) > 0 {
		c.warn("", c.credentialsKey(), nil, "%s may make itself Administrator, or root on the hosts, by %s: give it only the roles of "+
			"docs/permissions.md, on their paths, with `--propagate 0` where stated. `talos-proxmox permissions %s --narrow` prints the commands "+
			"for %s", c.site.Identity, strings.Join(excess, ", "), cmp.Or(c.stack.Name, "STACK"), permissions.Token)
	} else if len(unused) > 0 {
		c.warn("", c.credentialsKey(), nil, "%s has privileges that the program does not need: %s; give it only the roles of "+
			"docs/permissions.md", c.site.Identity, strings.Join(unused, ", "))
	}

	if escalating := c.site.Rights.Escalating(); len(escalating) > 0 {
		c.fine("", "%s can become root by %s (docs/permissions.md#what-the-holder-can-do): remove the rules that no setting and no new mapping "+
			"needs", c.site.Identity, strings.Join(escalating, ", "))
	}
}

// lack is what is missing of a role.
type lack struct{ privileges, paths []string }

// lacks returns what the program lacks of a role, by the path to grant it on.
func (c *checker) lacks(role permissions.Role) map[string]lack {
	return lacks(role, c.site.Rights, c.needs)
}

// lacks returns what is missing of a role with some rights, by the path to grant it on. Needs returns where a privilege
// of the table is needed.
func lacks(
	role permissions.Role, rights permissions.Granted, needs func(permissions.Need) []need,
) map[string]lack {
	all := map[string]lack{}

	for _, n := range role.Needs {
		for _, wanted := range needs(n) {
			wanted.privileges = append(wanted.privileges, n.Instead...)
			if slices.ContainsFunc(append([]string{wanted.path}, wanted.or...), func(path string) bool {
				return rights.Has(path, wanted.privileges...)
			}) {
				continue
			}

			path := n.Path
			if strings.Contains(path, "<") { // a path of the stack's own
				path = wanted.path
			}

			l := all[path]
			if !slices.Contains(l.privileges, wanted.privileges[0]) {
				l.privileges = append(l.privileges, wanted.privileges[0])
			}

			if !slices.Contains(l.paths, wanted.path) {
				l.paths = append(l.paths, wanted.path)
			}

			all[path] = l
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

// grant says how the credentials get what they lack of a role: by a rule, or because the role has too little, as one of
// an earlier version of the program, or is not there.
func (c *checker) grant(path string, role permissions.Role, missing lack) string {
	rule := fmt.Sprintf("`%s` gives it the role %s%s", c.grantCommand(path, role), role.ID, c.separatedTokenNote())

	has, exists := c.site.Roles[role.ID]
	if c.site.Roles == nil {
		return rule
	}

	if !exists {
		return fmt.Sprintf("`%s` makes the role, which is not there, and %s", role.Command(c.site.major()), rule)
	}

	absent := slices.DeleteFunc(slices.Clone(missing.privileges), func(p string) bool { return slices.Contains(has, p) })
	if len(absent) == 0 {
		return rule
	}

	text := fmt.Sprintf("`pveum role modify %s --append 1 --privs \"%s\"` gives the role what it lacks", role.ID,
		strings.Join(absent, " "))
	if len(absent) < len(missing.privileges) {
		text += ", and " + rule
	}

	return text
}

// grantCommand returns the command that grants a role on a path, with the plan's other roles there: a rule hides those
// of the paths above.
func (c *checker) grantCommand(path string, role permissions.Role) string {
	holder := permissions.Holder{User: c.site.Identity}
	if user, _, separated := strings.Cut(c.site.Identity, "!"); separated {
		holder = permissions.Holder{User: user, Token: c.site.Identity}
	}

	roles := []string{role.ID}

	for _, other := range rolesOf(c.plan) {
		if !slices.Contains(roles, other.ID) && slices.Contains(other.Paths(PlacesOf(c.plan)), path) &&
			strings.HasPrefix(path, "/storage/") {
			roles = append(roles, other.ID)
		}
	}

	return holder.Grant(path, roles...)
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
		return append(needsAt(c.planned.machines, templatePath, privilege), c.needsOnCloned(privilege)...)
	case "VM.Allocate":
		isNew := func(m machine) bool { return m.new || c.planned.hasAccounts(m) }

		return slices.Concat(c.needsOnMachines(isNew, privilege), c.needsOnImports(privilege), c.needsOnCloned(privilege))
	case "VM.GuestAgent.Audit":
		agent := func(m machine) bool { return slices.Contains(m.Template.Extensions, "siderolabs/qemu-guest-agent") }

		return c.needsOnMachines(agent, permissions.NameOn(c.site.major(), privilege), "VM.GuestAgent.Unrestricted")
	case "VM.Migrate":
		return c.needsOnMachines(func(m machine) bool {
			running, exists := c.stack.Machines[m.VMID]

			return exists && m.HostPinned && running.Host != m.Host
		}, privilege)
	case "VM.Replicate":
		return c.needsOnMachines(func(m machine) bool { return m.HA != nil && m.HA.Replication != nil }, privilege)
	case "Datastore.Allocate", "Datastore.AllocateSpace", "Datastore.AllocateTemplate", "Datastore.Audit":
		return c.needsOnStorage(n)
	case "SDN.Use":
		return c.needsOnBridges(privilege)
	case "Sys.AccessNetwork":
		return c.needsOnHosts(privilege)
	case "Realm.AllocateUser", "User.Modify":
		return c.needsForAccounts(n.Path, privilege, anyAccount)
	case "Sys.Modify":
		if n.Path != "/" {
			return c.needsForAccounts(n.Path, privilege, createsRoles)
		}

		if slices.ContainsFunc(c.planned.machines, func(m machine) bool { return m.new && m.StartupOrder > 0 }) {
			return []need{{privileges: []string{privilege}, path: "/"}}
		}

		return nil
	case "Sys.Console", "Sys.Audit":
		return c.needsOnDatacentre(n)
	case "Mapping.Use":
		return c.needsOnMappings(n)
	case "Mapping.Modify":
		return c.needsToMakeMappings(n)
	case "Pool.Allocate": // only a later run may need it
		return nil
	default:
		return append(c.needsOnMachines(func(machine) bool { return true }, privilege), c.needsOnImports(privilege)...)
	}
}
