package shell_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/permissions"
	"talos-proxmox/lab/datacentre"
)

// TestPermissionCommands creates the program's account with the documented commands and checks its permissions.
func TestPermissionCommands(t *testing.T) {
	t.Parallel()

	h := fast(t)

	commands := "set -eu\n"
	for _, role := range permissions.Roles() {
		commands += role.Commands(permissions.NewestPVE, permissions.Example()) + "\n"
	}

	stdout, stderr, status := h.run(t, commands, "")
	require.Zero(t, status, stderr)
	assert.Empty(t, stderr)
	assert.Contains(t, stdout, "│ full-tokenid │ pulumi@pve!talos")
	assert.Contains(t, stdout, "╞══════════════╪═")

	token := h.dc.Records(datacentre.Tokens)[permissions.Token]
	assert.True(t, token["privsep"] != "0")
	assert.Contains(t, stdout, "│ value        │ "+token["value"]+" ")
	assert.NotEmpty(t, token["expire"])

	assert.True(t, h.dc.Allowed(permissions.Token, "/vms/2000", "VM.Clone"))
	assert.True(t, h.dc.Allowed(permissions.Token, "/", "Sys.Modify"))
	assert.False(t, h.dc.Allowed(permissions.Token, "/access/users", "Sys.Modify"), "not propagated")

	assert.False(t, h.dc.Allowed(permissions.Token, "/storage", "Datastore.Allocate"), "no storage with a path of its own")
	assert.True(t, h.dc.Allowed(permissions.Token, "/storage/local", "Datastore.Allocate"))

	// An account of an earlier version has broader rules, which are replaced.
	for path, role := range map[string]string{"/storage": "TalosProxmox", "/mapping/pci": "TalosProxmoxGPU"} {
		_, stderr, status := h.run(t, permissions.Program().Grant(path, role), "")
		require.Zero(t, status, stderr)
	}

	assert.True(t, h.dc.Allowed(permissions.Token, "/storage", "Datastore.Allocate"))

	narrow := permissions.Narrow(permissions.Roles(), permissions.NewestPVE, permissions.Example())

	for range 2 {
		_, stderr, status = h.run(t, "set -e\n"+narrow, "")
		require.Zero(t, status, stderr)
		assert.Empty(t, stderr)
		assert.False(t, h.dc.Allowed(permissions.Token, "/storage", "Datastore.Allocate"))
		assert.True(t, h.dc.Allowed(permissions.Token, "/storage/local", "Datastore.Allocate"))
		assert.False(t, h.dc.Allowed(permissions.Token, "/mapping/pci/other", "Mapping.Use"))
	}

	for command, want := range map[string]string{
		"pveum role add TalosProxmox":                               "role 'TalosProxmox' already exists",
		"pveum acl modify /vms --users nobody@pve --roles NoAccess": "nobody@pve",
		"pveum user add":                    "400 not enough arguments\npveum user add <userid> [OPTIONS]",
		"pveum user token add a@pve b --no": "Unknown option: no",
		"pveum realm sync":                  "unknown command 'pveum realm'",
		"pveum":                             "unknown command 'pveum'",
		"pveum user token remove pulumi@pve talos && pveum user delete pulumi@pve && false": "",
	} {
		_, stderr, status := h.run(t, command, "")
		assert.NotZero(t, status, command)
		assert.Contains(t, stderr, want, command)
	}

	assert.False(t, strings.Contains(strings.Join(usersOf(h), " "), permissions.User))
}

func usersOf(h *host) (list []string) {
	for id := range h.dc.Records(datacentre.Users) {
		list = append(list, id)
	}

	return list
}
