package rules

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"talos-proxmox/internal/permissions"
)

func privilegePolicies() []policy {
	return []policy{{
		Name:        "least-privilege",
		Description: "API tokens have the documented roles, and no more.",
		Reason: "A token that leaks is worth what it may do. docs/permissions.md has the roles that the program needs, and those of the Proxmox cloud controller manager " +
			"and CSI plugin, which need them on single machines and datastores.",
		Stack: leastPrivilege,
	}}
}

// Privileges are those that a role of the plan may have: the documented ones of the program, of the cloud controller
// manager and of the CSI driver.
func Privileges() []string {
	var list []string
	for _, role := range slices.Concat(permissions.Roles(), permissions.KubernetesRoles()) {
		list = slices.Concat(list, role.Privileges(), role.PrivilegesOn(8))
	}

	slices.Sort(list)

	return slices.Compact(list)
}

// administrators are Proxmox' own roles that may more than any program needs.
func administrators() []string {
	return []string{
		"Administrator", "PVEAdmin", "PVESysAdmin", "PVEUserAdmin", "PVEVMAdmin", "PVEDatastoreAdmin", "PVEPoolAdmin",
		"PVESDNAdmin", "PVEMappingAdmin",
	}
}

func leastPrivilege(p plan) []violation {
	var found []violation

	for _, r := range p.of(typeProvider) {
		if token := r.at("apiToken").text(); strings.HasPrefix(token.Value, "root@pam!") {
			found = append(found, refuse(r.URN, "provider "+r.Name, "apiToken is one of root@pam, which may do everything: make a user, a role and its own token (docs/permissions.md)"))
		}
	}

	for _, r := range p.of(typeRole) {
		var more []string

		for _, privilege := range r.at("privileges").texts().Value {
			if !slices.Contains(Privileges(), privilege) {
				more = append(more, privilege)
			}
		}

		if len(more) > 0 {
			found = append(
				found,
				refuse(
					r.URN, r.Name,
					fmt.Sprintf(
						"privileges has %s, which nothing here needs: leave it out (docs/permissions.md)", strings.Join(more, ", "),
					),
				),
			)
		}
	}

	software := p.software()
	for _, r := range p.of(typeACL) {
		found = append(found, administrates(r, "", r.Properties)...)
		found = append(found, spreads(r, software)...)
	}

	for _, r := range slices.Concat(p.of(typeUser), p.of(typeGroup)) {
		rules, _ := r.at("acls").items()
		for i, rule := range rules {
			found = append(found, administrates(r, fmt.Sprintf("acls[%d].", i), rule)...)
		}
	}

	for _, r := range p.of(typeToken) {
		if separated := r.at("privilegesSeparation"); !separated.absent() && is(separated.flag(), false) {
			found = append(found, refuse(r.URN, r.Name, "privilegesSeparation is false, so that the token may do whatever its user may: set it to true, and give the token its own role"))
		}
	}

	return found
}

// software are the users of clusters' software.
func (p plan) software() (users []string) {
	for _, r := range p.of(typeUser) {
		if slices.Contains(r.at("groups").texts().Value, permissions.Group) {
			users = append(users, r.at("userId").text().Value)
		}
	}

	return users
}

// single are the paths of one machine and of one datastore.
var single = regexp.MustCompile(`^/(vms|storage)/[^/]+$`)

// spreads judges a rule of a cluster's software, which is for one machine or one datastore.
func spreads(r resource, software []string) []violation {
	user, _, _ := strings.Cut(cmp.Or(r.at("userId").text().Value, r.at("tokenId").text().Value), "!")

	path := r.at("path").text().Value
	if path == "" || single.MatchString(path) || !slices.Contains(software, user) {
		return nil
	}

	return []violation{refuse(r.URN, r.Name, fmt.Sprintf("path is %q, and %s is software of a cluster: give it rules on its "+
		"own machines and datastores, such as /vms/2000 and /storage/local-lvm (docs/platform.md)", path, user))}
}

// administrates judges an access rule, which is the resource itself or one of its properties.
func administrates(r resource, prefix string, rule value) []violation {
	role := rule.at("roleId").text().Value
	if !slices.Contains(administrators(), role) {
		return nil
	}

	return []violation{refuse(r.URN, r.Name,
		fmt.Sprintf(
			"%sroleId is %s on %q: give a role with the documented privileges (docs/permissions.md)", prefix, role,
			rule.at("path").text().Value,
		))}
}
