package rules

import "testing"

func TestLeastPrivilege(t *testing.T) {
	t.Parallel()

	const root = "root@pam!all=947e717a-ab18-4ee2-8123-6adba4f62f9a"

	checkAll(t, "least-privilege", map[string]ruling{
		"the documented ones": {plan: []resource{
			res(typeProvider, "p", props{"apiToken": secret{"pulumi@pve!talos=x"}}),
			res(typeRole, "r", props{"privileges": Privileges()}),
			res(typeACL, "a", props{"roleId": "TalosProxmox", "path": "/vms"}),
			res(typeToken, "t", props{"privilegesSeparation": true}), res(typeToken, "u", nil),
		}},
		"a token of root": {
			plan: []resource{res(typeProvider, "p", props{"apiToken": secret{root}})},
			want: []string{"provider p: apiToken is one of root@pam, which may do everything: make a user"},
		},
		"a password of root": {
			plan: []resource{res(typeProvider, "p", props{"username": "root@pam", "password": secret{"x"}})},
		},
		"a role with more": {
			plan: []resource{
				res(typeRole, "r", props{"privileges": []string{"VM.Audit", "Permissions.Modify", "Sys.PowerMgmt"}}),
			},
			want: []string{"r: privileges has Permissions.Modify, Sys.PowerMgmt, which nothing here needs: leave it out"},
		},
		"an administrator": {
			plan: []resource{res(typeACL, "a", props{"roleId": "Administrator", "path": "/"})},
			want: []string{`a: roleId is Administrator on "/"`},
		},
		"a user who administrates": {
			plan: []resource{
				res(
					typeUser, "u",
					props{"acls": []any{props{"roleId": "TalosProxmox", "path": "/vms"}, props{"roleId": "PVEAdmin", "path": "/"}}},
				),
			},
			want: []string{`u: acls[1].roleId is PVEAdmin on "/"`},
		},
		"a group that administrates": {
			plan: []resource{res(typeGroup, "g", props{"acls": []any{props{"roleId": "PVEVMAdmin", "path": "/vms"}}})},
			want: []string{`g: acls[0].roleId is PVEVMAdmin on "/vms"`},
		},
		"software of a cluster on all machines": {
			plan: []resource{
				res(typeUser, "u", props{"userId": "talos-csi@pve", "groups": []any{"talos-kubernetes"}}),
				res(typeACL, "a", props{"roleId": "r", "path": "/vms", "tokenId": "talos-csi@pve!kubernetes-1"}),
				res(typeACL, "b", props{"roleId": "r", "path": "/vms/2000", "userId": "talos-csi@pve"}),
				res(typeACL, "c", props{"roleId": "r", "path": "/vms", "userId": "others@pve"}),
				res(typeACL, "d", props{"roleId": "r", "path": "/vms", "tokenId": unknown}),
			},
			want: []string{`a: path is "/vms", and talos-csi@pve is software of a cluster: give it rules on its own machines`},
		},
		"a token that is its user": {
			plan: []resource{res(typeToken, "t", props{"privilegesSeparation": false})},
			want: []string{"t: privilegesSeparation is false"},
		},
		"not known yet": {plan: []resource{
			res(typeProvider, "p", props{"apiToken": unknown}), res(typeRole, "r", props{"privileges": []any{unknown}}),
			res(typeRole, "s", props{"privileges": unknown}),
			res(typeACL, "a", props{"roleId": unknown}), res(typeToken, "t", props{"privilegesSeparation": unknown}),
			res(typeUser, "u", props{"acls": unknown}),
			res(typeGroup, "g", props{"acls": []any{unknown, props{"roleId": unknown}}}),
		}},
		"of another kind": {plan: []resource{
			res(typeProvider, "p", props{"apiToken": 5}), res(typeRole, "r", props{"privileges": "all"}),
			res(typeACL, "a", props{"roleId": []any{}}), res(typeToken, "t", props{"privilegesSeparation": "perhaps"}),
			res(typeUser, "u", props{"acls": "all"}), res(typeGroup, "g", props{"acls": []any{7, props{"roleId": 8}}}),
		}},
		"a secret role is not shown": {
			plan: []resource{res(typeACL, "a", props{"roleId": secret{"PVEAdmin"}, "path": "/vms"})},
			want: []string{"a: roleId is [secret]"},
		},
	})
}
