package rules

import (
	"fmt"
	"slices"
	"strings"

	"talos-proxmox/internal/permissions"
)

func privilegePolicies() []policy {
	return []policy{{
		Name:        "least-privilege",
		Description: "API tokens have the documented roles, and no more.",
		Reason: "A token that leaks is worth what it may do. docs/permissions.md has the roles that the program needs; the Proxmox cloud controller manager and " +
			"CSI driver need VM.Audit, Sys.Audit, Datastore.Audit and what is in them.",
		Stack: leastPrivilege,
	}}
}

// Privileges are those that a role of the plan may have: the documented ones of the program, of the cloud controller
// manager and of the CSI driver.
func Privileges() []string {
	list := []string{"Datastore.Audit", "Sys.Audit"} // the controller manager's and the driver's
	for _, role := range permissions.Roles() {
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

	for _, r := range p.of(typeACL) {
		found = append(found, administrates(r, "", r.Properties)...)
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
