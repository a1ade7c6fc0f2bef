package proxmox_test

import "github.com/stretchr/testify/require"

// accounts are users, groups, roles, tokens and rules through their lives.
func (s steps) accounts() {
	const (
		user  = "/access/users/ops@pve"
		group = "/access/groups/admins"
		tok   = user + "/token/ci"
		role  = "/access/roles/Lab"
	)

	s.ok("POST", "/access/roles", "roleid", "Lab", "privs", "VM.Audit,VM.Config.CPU")
	s.ok("PUT", role, "append", "1", "privs", "VM.PowerMgmt")
	s.ok("POST", "/access/groups", "groupid", "admins", "comment", "c")
	s.ok("PUT", group, "comment", "d")
	s.ok(
		"POST", "/access/users", "userid", "ops@pve", "password", "long enough", "email", "ops@example.org", "groups",
		"admins", "enable", "1", "expire", "0", "keys", "x!yubico",
	)
	s.ok("PUT", user, "comment", "c", "firstname", "O")
	require.Equal(
		s.t, 200,
		s.lab.asRoot(s.t, "PUT", "/access/password", form(
			"userid", "ops@pve", "password", "longer than that", "confirmation-password", password,
		)).status,
	)
	s.ok("POST", tok, "privsep", "1", "comment", "c")
	s.ok("PUT", tok, "expire", "0")
	s.ok(
		"PUT", "/access/acl", "path", "/vms", "roles", "Lab", "users", "ops@pve", "tokens", "ops@pve!ci", "groups", "admins",
		"propagate", "1",
	)

	for _, path := range []string{
		"/access/roles", role, "/access/groups", group, "/access/users", "/access/users?full=1&enabled=1", user,
		user + "/token", tok, "/access/acl",
		"/access/permissions", "/access/permissions?path=/vms&userid=ops@pve",
	} {
		s.ok("GET", path)
	}

	s.ok("PUT", "/access/acl", "path", "/vms", "roles", "Lab", "users", "ops@pve", "delete", "1")

	for _, path := range []string{tok, user, group, role} {
		s.ok("DELETE", path)
	}
}
