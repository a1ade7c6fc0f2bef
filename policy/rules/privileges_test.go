package rules

import (
	"testing"

	"talos-proxmox/internal/permissions"
	"talos-proxmox/internal/tokens"
)

func TestLeastPrivilege(t *testing.T) {
	t.Parallel()

	const root = "root@pam!all=947e717a-ab18-4ee2-8123-6adba4f62f9a"

	runCases(t, "least-privilege", map[string]policyCase{
		"the documented ones": {plan: []resource{
			newResource(tokens.ProxmoxProvider, "p", props{"apiToken": secret{"pulumi@pve!talos=x"}}),
			newResource(tokens.Role, "r", props{"privileges": permissions.Privileges()}),
			newResource(tokens.ACL, "a", props{"roleId": "TalosProxmox", "path": "/vms"}),
			newResource(tokens.UserToken, "t", props{"privilegesSeparation": true}), newResource(tokens.UserToken, "u", nil),
		}},
		"a token of root": {
			plan: []resource{newResource(tokens.ProxmoxProvider, "p", props{"apiToken": secret{root}})},
			want: []string{"provider p: apiToken is one of root@pam, which may do everything: make a user"},
		},
		"a password of root": {
			plan: []resource{newResource(tokens.ProxmoxProvider, "p", props{"username": "root@pam", "password": secret{"x"}})},
		},
		"a role with more": {
			plan: []resource{
				newResource(tokens.Role, "r", props{"privileges": []string{"VM.Audit", "Permissions.Modify", "Sys.PowerMgmt"}}),
			},
			want: []string{"r: privileges has Permissions.Modify, Sys.PowerMgmt, which nothing here needs: leave it out"},
		},
		"an administrator": {
			plan: []resource{newResource(tokens.ACL, "a", props{"roleId": "Administrator", "path": "/"})},
			want: []string{`a: roleId is Administrator on "/"`},
		},
		"a user with an administrator's role": {
			plan: []resource{
				newResource(
					tokens.User, "u",
					props{"acls": []any{props{"roleId": "TalosProxmox", "path": "/vms"}, props{"roleId": "PVEAdmin", "path": "/"}}},
				),
			},
			want: []string{`u: acls[1].roleId is PVEAdmin on "/"`},
		},
		"a group with an administrator's role": {
			plan: []resource{newResource(tokens.Group, "g", props{"acls": []any{props{"roleId": "PVEVMAdmin", "path": "/vms"}}})},
			want: []string{`g: acls[0].roleId is PVEVMAdmin on "/vms"`},
		},
		"software of a cluster on all machines": {
			plan: []resource{
				newResource(tokens.User, "u", props{"userId": "talos-csi@pve", "groups": []any{"talos-kubernetes"}}),
				newResource(tokens.ACL, "a", props{"roleId": "r", "path": "/vms", "tokenId": "talos-csi@pve!kubernetes-1"}),
				newResource(tokens.ACL, "b", props{"roleId": "r", "path": "/vms/2000", "userId": "talos-csi@pve"}),
				newResource(tokens.ACL, "c", props{"roleId": "r", "path": "/vms", "userId": "others@pve"}),
				newResource(tokens.ACL, "d", props{"roleId": "r", "path": "/vms", "tokenId": unknown}),
			},
			want: []string{`a: path is "/vms", and talos-csi@pve is software of a cluster: give it rules on its own machines`},
		},
		"a token without privilege separation": {
			plan: []resource{newResource(tokens.UserToken, "t", props{"privilegesSeparation": false})},
			want: []string{"t: privilegesSeparation is false"},
		},
		"a secret role is not shown": {
			plan: []resource{newResource(tokens.ACL, "a", props{"roleId": secret{"PVEAdmin"}, "path": "/vms"})},
			want: []string{"a: roleId is [secret]"},
		},
	})
}
