package server_test

import (
	"slices"
	"strings"
	"testing"
	"text/template"

	"talos-proxmox/internal/goldentest"
	"talos-proxmox/internal/permissions"
	"talos-proxmox/lab/datacentre"
)

// beyondTheStack returns the needs that reach further than the stack, each privilege on a path once.
func beyondTheStack() (needs []permissions.Need) {
	for _, role := range permissions.Roles() {
		for _, n := range role.Needs {
			isSame := func(other permissions.Need) bool { return other.Privilege == n.Privilege && other.Path == n.Path }
			if n.Beyond != "" && !slices.ContainsFunc(needs, isSame) {
				needs = append(needs, n)
			}
		}
	}

	return needs
}

// TestPermissionsDocument fails if docs/permissions.md is older than the table that it is rendered from.
func TestPermissionsDocument(t *testing.T) {
	t.Parallel()

	goldentest.Rendered(t, "../../docs/permissions.md", "testdata/permissions.md.tmpl", map[string]any{
		"Roles": permissions.Roles(), "Beyond": beyondTheStack(), "KubernetesRoles": permissions.KubernetesRoles(),
		"AutoscalerRoles": permissions.AutoscalerRoles(), "AutoscalerGrants": permissions.AutoscalerGrants(),
		"Newest": permissions.NewestPVE, "Before": datacentre.PVE8,
		"User": permissions.User, "Token": permissions.Token, "OwnGroup": permissions.OwnGroup,
		"Own":     permissions.Program().Grant("/access/groups/"+permissions.OwnGroup, "TalosProxmoxSelf"),
		"Example": permissions.Example(),
		"Remove":  permissions.Program().Revoke("/mapping/pci", "TalosProxmoxMappings"),
	}, template.FuncMap{
		"join":    strings.Join,
		"escaped": func(text string) string { return strings.ReplaceAll(text, "|", `\|`) },
		// Lists omit what an account may not see.
		"hidden": func(refusal string) bool { return strings.HasSuffix(refusal, "failed") },
	})
}
