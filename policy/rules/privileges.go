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

// administrators are Proxmox' own roles that may more than any program needs.
func administrators() []string {
	return []string{
		"Administrator",
		"PVEAdmin", "PVESysAdmin", "PVEUserAdmin", "PVEVMAdmin", "PVEDatastoreAdmin", "PVEPoolAdmin",
		"PVESDNAdmin", "PVEMappingAdmin",
	}
}

func leastPrivilege(p plan) problem.List {
	var found problem.List

	documented := permissions.Privileges()

	for _, r := range p.of(tokens.ProxmoxProvider) {
		if token := r.at("apiToken").text(); strings.HasPrefix(token.Value, "root@pam!") {
			found = append(found, refuse(r.URN, "provider "+r.Name,
				"apiToken is one of root@pam, which may do everything: make a user, a role and its own token (docs/permissions.md)"))
		}
	}

	for _, r := range p.of(tokens.Role) {
		var more []string

		for _, privilege := range r.at("privileges").texts().Value {
			if !slices.Contains(documented, privilege) {
				more = append(more, privilege)
			}
		}

		if len(more) > 0 {
			found = append(found, refuse(r.URN, r.Name,
				"privileges has %s, which nothing here needs: leave it out (docs/permissions.md)",
				strings.Join(more, ", ")))
		}
	}

	software := p.software()
	for _, r := range p.of(tokens.ACL) {
		found = append(found, administrates(r, "", r.Properties)...)
		found = append(found, spreads(r, software)...)
	}

	for _, r := range slices.Concat(p.of(tokens.User), p.of(tokens.Group)) {
		rules, _ := r.at("acls").items()
		for i, rule := range rules {
			found = append(found, administrates(r, fmt.Sprintf("acls[%d].", i), rule)...)
		}
	}

	for _, r := range p.of(tokens.UserToken) {
		if separated := r.at("privilegesSeparation"); !separated.absent() && is(separated.flag(), false) {
			found = append(found, refuse(r.URN, r.Name,
				"privilegesSeparation is false, so that the token may do whatever its user may: set it to true, and give the token its own role"))
		}
	}

	return found
}

// software are the users of clusters' software.
func (p plan) software() (users []string) {
	for _, r := range p.of(tokens.User) {
		if slices.Contains(r.at("groups").texts().Value, permissions.Group) {
			users = append(users, r.at("userId").text().Value)
		}
	}

	return users
}

// single are the paths of one machine and of one datastore.
var single = regexp.MustCompile(`^/(vms|storage)/[^/]+$`)

// spreads judges a rule of a cluster's software, which is for one machine or one datastore.
func spreads(r resource, software []string) problem.List {
	user, _, _ := strings.Cut(cmp.Or(r.at("userId").text().Value, r.at("tokenId").text().Value), "!")

	path := r.at("path").text().Value
	if path == "" || single.MatchString(path) || !slices.Contains(software, user) {
		return nil
	}

	return problem.List{refuse(r.URN, r.Name,
		"path is %q, and %s is software of a cluster: give it rules on its own machines and datastores, such as /vms/2000 and /storage/local-lvm (docs/platform.md)",
		path, user)}
}

// administrates judges an access rule, which is the resource itself or one of its properties.
func administrates(r resource, prefix string, rule value) problem.List {
	role := rule.at("roleId").text().Value
	if !slices.Contains(administrators(), role) {
		return nil
	}

	return problem.List{refuse(r.URN, r.Name,
		"%sroleId is %s on %q: give a role with the documented privileges (docs/permissions.md)",
		prefix, role, rule.at("path").text().Value)}
}
