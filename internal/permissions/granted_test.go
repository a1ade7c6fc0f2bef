package permissions_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"talos-proxmox/internal/permissions"
)

func TestGranted(t *testing.T) {
	t.Parallel()

	granted := permissions.Granted{
		"/":                         {"Sys.Modify": false},
		"/vms":                      {"VM.Audit": true, "VM.Clone": false},
		"/vms/2000":                 {"VM.Clone": true},
		"/storage/local":            {"Datastore.AllocateSpace": true},
		"/sdn/zones/localnetwork":   {"SDN.Use": true},
		"/sdn/zones/localnetwork/b": {"SDN.Audit": false},
	}

	for name, tc := range map[string]struct {
		path       string
		privileges []string
		want       bool
	}{
		"the path itself":             {"/vms", []string{"VM.Clone"}, true},
		"below, propagated":           {"/vms/3000", []string{"VM.Audit"}, true},
		"below, not propagated":       {"/vms/3000", []string{"VM.Clone"}, false},
		"the most specific path wins": {"/vms/2000", []string{"VM.Audit"}, false},
		"any of several": {
			"/storage/local", []string{"Datastore.Audit", "Datastore.AllocateSpace"}, true,
		},
		"another path":                              {"/storage/fast", []string{"Datastore.AllocateSpace"}, false},
		"two steps below":                           {"/sdn/zones/localnetwork/vmbr0/42", []string{"SDN.Use"}, true},
		"past a rule that does not propagate":       {"/sdn/zones/localnetwork/b/42", []string{"SDN.Use"}, true},
		"the root's that does not propagate":        {"/nodes/pve1", []string{"Sys.Modify"}, false},
		"the root":                                  {"/", []string{"Sys.Modify"}, true},
		"what is granted nowhere":                   {"/", []string{"Sys.Audit"}, false},
		"a path of another's name":                  {"/vmsx", []string{"VM.Audit"}, false},
		"a path that begins with no slash is none":  {"vms", []string{"VM.Audit"}, false},
		"the privilege of another path of the tree": {"/storage/local", []string{"VM.Audit"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tc.want, granted.Has(tc.path, tc.privileges...))
		})
	}

	assert.False(t, permissions.Granted(nil).Has("/vms", "VM.Audit"))
}

// documented returns the rights of an account with all documented roles.
func documented() permissions.Granted {
	g := permissions.Granted{}

	for _, role := range permissions.Roles() {
		for _, n := range role.Needs {
			for _, path := range permissions.Example().Paths(n.Path) {
				if g[path] == nil {
					g[path] = map[string]bool{}
				}

				g[path][n.Privilege] = permissions.Propagates(path)
			}
		}
	}

	return g
}

// TestExcess: the documented roles on their paths reach nothing that Excess reports; the same privileges on paths above
// do, as the roles of earlier versions had them.
func TestExcess(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		path, privilege string
		propagates      bool
		want            []string
	}{
		"the documented roles":              {"/vms", "VM.Audit", true, nil},
		"startupOrder's, propagated":        {"/", "Sys.Modify", true, []string{"Sys.Modify on /"}},
		"the privilege to grant privileges": {"/", "Permissions.Modify", false, []string{"Permissions.Modify on /"}},
		"the same, of one machine":          {"/vms/100", "Permissions.Modify", true, nil},
		"the same, of one storage":          {"/storage/local", "Permissions.Modify", true, nil},
		"the same, of all storages": {
			"/storage", "Permissions.Modify", false, []string{"Permissions.Modify on /storage"},
		},
		"the same, of accounts":          {"/access/groups", "Permissions.Modify", true, []string{"Permissions.Modify on /access/groups"}},
		"shells of a host":               {"/nodes/pve1", "Sys.Console", true, []string{"Sys.Console on /nodes/pve1"}},
		"a host's network and packages":  {"/nodes", "Sys.Modify", true, []string{"Sys.Modify on /nodes"}},
		"another group's users":          {"/access/groups/admins", "User.Modify", true, []string{"User.Modify on /access/groups/admins"}},
		"all users, propagated":          {"/access", "User.Modify", true, []string{"User.Modify on /access"}},
		"all users, that no group is in": {"/access", "User.Modify", false, nil},
		"storages with any path": {
			"/storage", "Datastore.Allocate", false, []string{"Datastore.Allocate on /storage"},
		},
		"storages, by the root's": {"/", "Datastore.Allocate", true, []string{"Datastore.Allocate on /"}},
		"another storage alone":   {"/storage/backup", "Datastore.Allocate", true, nil},
		"mappings below": {
			"/mapping/pci", "Mapping.Modify", true, []string{"Mapping.Modify on /mapping/pci"},
		},
		"mappings of folders": {
			"/mapping/dir", "Mapping.Modify", true, []string{"Mapping.Modify on /mapping/dir"},
		},
		"the use of all mappings": {"/mapping/pci", "Mapping.Use", true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			g := documented()
			if g[test.path] == nil {
				g[test.path] = map[string]bool{}
			}

			g[test.path][test.privilege] = test.propagates
			assert.Equal(t, test.want, g.Excess())
		})
	}

	assert.Empty(t, permissions.Granted(nil).Excess())
}

// TestEscalating lists the documented privileges whose holder becomes root, and what it can do.
func TestEscalating(t *testing.T) {
	t.Parallel()

	assert.Equal(t, []string{
		"Sys.Modify on /", "Sys.Modify on /access",
		"Mapping.Modify on /mapping/pci", "Mapping.Modify on /mapping/pci/rtx4000",
	}, documented().Escalating())

	for _, role := range permissions.Roles() {
		if role.For == "" {
			for _, n := range role.Needs {
				assert.False(t, n.Escalates, "every stack's account has %s on %s", n.Privilege, n.Path)
			}
		}
	}
}

func TestUnused(t *testing.T) {
	t.Parallel()

	granted := permissions.Granted{
		"/":      {"Sys.Audit": true, "Pool.Audit": true},
		"/vms":   {"VM.Clone": true, "VM.Monitor": true, "VM.Console": false},
		"/vms/1": {"VM.Console": true, "VM.Backup": true},
	}
	assert.Equal(t, []string{"VM.Backup on /vms/1", "VM.Console on /vms"}, granted.Unused())
	assert.Empty(t, permissions.Granted(nil).Unused())

	for _, role := range permissions.Roles() {
		granted := permissions.Granted{}
		for _, need := range role.Needs {
			granted[need.Path] = map[string]bool{need.Privilege: true}
		}

		assert.Empty(t, granted.Unused(), role.ID)
	}
}
