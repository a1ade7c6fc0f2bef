package rules

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"talos-proxmox/internal/permissions"
	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/tokens"
)

func privilegePolicies() []policy {
	return []policy{{
		Name:        "least-privilege",
		Description: "API tokens have the documented roles, and no more.",
		Reason: "This limits the damage of a leaked token. docs/permissions.md lists the roles of the program, and those of the Proxmox cloud controller manager " +
			"and CSI plugin, which need them only on single machines and datastores.",
		Stack: leastPrivilege,
	}}
}

// administratorRoles are Proxmox' own roles with more privileges than any program needs.
func administratorRoles() []string {
	return []string{
		"Administrator",
		"PVEAdmin", "PVESysAdmin", "PVEUserAdmin", "PVEVMAdmin", "PVEDatastoreAdmin", "PVEPoolAdmin",
		"PVESDNAdmin", "PVEMappingAdmin",
	}
}

func leastPrivilege(p plan) problem.List {
	var found problem.List

	documented := permissions.Privileges()

	for _, r := range p.ofType(tokens.ProxmoxProvider) {
		if token := r.at("apiToken").text(); strings.HasPrefix(token.Value, "root@pam!") {
			found = append(found, violation(r.URN, "provider "+r.Name,
				"apiToken is one of root@pam, which may do everything: make a user, a role and its own token (docs/permissions.md)"))
		}
	}

	for _, r := range p.ofType(tokens.Role) {
		var excess []string

		for _, privilege := range r.at("privileges").texts().Value {
			if !slices.Contains(documented, privilege) {
				excess = append(excess, privilege)
			}
		}

		if len(excess) > 0 {
			found = append(found, violation(r.URN, r.Name,
				"privileges has %s, which nothing here needs: leave it out (docs/permissions.md)",
				strings.Join(excess, ", ")))
		}
	}

	software := p.softwareUsers()
	for _, r := range p.ofType(tokens.ACL) {
		found = append(found, checkAdministratorRole(r, "", r.Properties)...)
		found = append(found, checkSoftwareACL(r, software)...)
	}

	for _, r := range slices.Concat(p.ofType(tokens.User), p.ofType(tokens.Group)) {
		acls, _ := r.at("acls").items()
		for i, acl := range acls {
			found = append(found, checkAdministratorRole(r, fmt.Sprintf("acls[%d].", i), acl)...)
		}
	}

	for _, r := range p.ofType(tokens.UserToken) {
		if separated := r.at("privilegesSeparation"); !separated.isAbsent() && equals(separated.flag(), false) {
			found = append(found, violation(r.URN, r.Name,
				"privilegesSeparation is false, so that the token may do whatever its user may: set it to true, and give the token its own role"))
		}
	}

	return found
}

// softwareUsers returns the users of clusters' software.
func (p plan) softwareUsers() (users []string) {
	for _, r := range p.ofType(tokens.User) {
		if slices.Contains(r.at("groups").texts().Value, permissions.Group) {
			users = append(users, r.at("userId").text().Value)
		}
	}

	return users
}

// singleObjectPath matches the paths of one machine and of one datastore.
var singleObjectPath = regexp.MustCompile(`^/(vms|storage)/[^/]+$`)

// checkSoftwareACL refuses an ACL entry of a cluster's software that is not for one machine or one datastore.
func checkSoftwareACL(r resource, software []string) problem.List {
	user, _, _ := strings.Cut(cmp.Or(r.at("userId").text().Value, r.at("tokenId").text().Value), "!")

	path := r.at("path").text().Value
	if path == "" || singleObjectPath.MatchString(path) || !slices.Contains(software, user) {
		return nil
	}

	return problem.List{violation(r.URN, r.Name,
		"path is %q, and %s is software of a cluster: give it rules on its own machines and datastores, such as /vms/2000 and /storage/local-lvm (docs/platform.md)",
		path, user)}
}

// checkAdministratorRole refuses an ACL entry, the resource itself or one of its properties, with an administrator's
// role.
func checkAdministratorRole(r resource, prefix string, acl value) problem.List {
	role := acl.at("roleId").text().Value
	if !slices.Contains(administratorRoles(), role) {
		return nil
	}

	return problem.List{violation(r.URN, r.Name,
		"%sroleId is %s on %q: give a role with the documented privileges (docs/permissions.md)",
		prefix, role, acl.at("path").text().Value)}
}
