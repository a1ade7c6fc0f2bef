package permissions

import (
	"fmt"
	"slices"
	"strings"
)

// Holder is a user, and its token unless it is empty.
type Holder struct{ User, Token string }

// Program is the holder in the documents.
func Program() Holder { return Holder{User, Token} }

func (h Holder) flags() string {
	if h.Token == "" {
		return " --users " + h.User
	}

	return " --users " + h.User + " --tokens '" + h.Token + "'"
}

// Grant returns the shell command that grants roles on a path.
func (h Holder) Grant(path string, roles ...string) string {
	line := "pveum acl modify " + path + h.flags() + " --roles " + strings.Join(roles, ",")
	if !Propagates(path) {
		line += " --propagate 0"
	}

	return line
}

// Revoke returns the shell command that removes a role on a path.
func (h Holder) Revoke(path, role string) string {
	return "pveum acl delete " + path + h.flags() + " --roles " + role
}

// Command returns the shell command that creates the role on a major version of Proxmox VE.
func (r Role) Command(major int) string {
	return fmt.Sprintf("pveum role add %s --privs \"%s\"", r.ID, strings.Join(r.PrivilegesOn(major), " "))
}

// Commands returns the shell commands that create the role on a major version of Proxmox VE and grant it to the
// program's user and token. The program itself grants roles of clusters' software.
func (r Role) Commands(major int, places Places) string {
	lines := []string{r.Command(major)}
	if r.forSoftware() {
		return lines[0]
	}

	_, token, _ := strings.Cut(Token, "!")

	if r.ID == Roles()[0].ID {
		lines = append(lines,
			"pveum user add "+User+" --comment talos-proxmox",
			"pveum user token add "+User+" "+token+" --privsep 1 --expire $(date -d '+1 year' +%s)   # prints the secret, once")
	}

	for _, path := range r.Paths(places) {
		if group, found := strings.CutPrefix(path, "/access/groups/"); found {
			lines = append(lines, "pveum group add "+group)
		}

		lines = append(lines, Program().Grant(path, r.ID)+r.remark())
	}

	return strings.Join(lines, "\n")
}

// remark is a comment in the shell after a command that grants a role.
func (r Role) remark() string {
	if slices.ContainsFunc(r.Needs, func(n Need) bool { return n.Escalates }) {
		return "   # its holder can become root: docs/permissions.md#what-the-holder-can-do"
	}

	return ""
}

// Narrow returns the shell commands that grant roles of an existing account on a stack's own paths, and then remove its
// rules of earlier versions for all datastores and mappings. Until then the broad rules apply.
func Narrow(roles []Role, major int, places Places) string {
	var lines []string

	roles = slices.DeleteFunc(slices.Clone(roles), Role.forSoftware)
	for _, r := range roles {
		lines = append(lines, r.Command(major)+" 2>/dev/null || "+strings.Replace(r.Command(major), " add ", " modify ", 1))
	}

	for _, r := range roles {
		for _, path := range r.Paths(places) {
			lines = append(lines, Program().Grant(path, r.ID)+r.remark())
		}
	}

	for _, broad := range []struct{ role, path string }{
		{"TalosProxmox", "/storage"}, {"TalosProxmoxAccounts", "/storage"}, {"TalosProxmoxGPU", "/mapping/pci"},
	} {
		if slices.ContainsFunc(roles, func(r Role) bool { return r.ID == broad.role }) {
			lines = append(lines, Program().Revoke(broad.path, broad.role))
		}
	}

	return strings.Join(lines, "\n")
}

func (r Role) forSoftware() bool {
	software := slices.Concat(KubernetesRoles(), AutoscalerRoles())

	return slices.ContainsFunc(software, func(k Role) bool { return k.ID == r.ID })
}
