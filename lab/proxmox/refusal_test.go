package proxmox_test

import (
	"fmt"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
)

// TestRefusals covers refusals that no call of the recording does; for others see TestTheLabAnswersAsRecorded.
func TestRefusals(t *testing.T) {
	t.Parallel()

	l := newLab(t)
	l.dc.Put(datacentre.Users, "ann@pve", datacentre.Config{"password": "password"})
	l.dc.Put(datacentre.Tokens, "ann@pve!hers", datacentre.Config{"value": "s", "privsep": "0"})
	require.NoError(t, l.dc.PutRole("Reader", "VM.Audit"))
	require.Equal(t, "OK", l.task(t, "POST", "/nodes/pve1/qemu", form("vmid", "101")))

	rule := func(role string, pairs ...string) url.Values {
		return form(append(pairs, "path", "/vms", "roles", role)...)
	}

	for name, tc := range map[string]struct {
		method, path string
		form         url.Values
		status       int
		want         string
	}{
		"a machine on another host": {
			"GET", "/nodes/pve2/qemu/101/config", nil, 500,
			"Configuration file 'nodes/pve2/qemu-server/101.conf' does not exist map[]",
		},
		"a parameter that contradicts the path": {
			"POST", "/nodes/pve1/qemu/102/status/start", form("vmid", "103"), 400,
			"Parameter verification failed. map[vmid:duplicate parameter (already defined in URI) with conflicting values!]",
		},
		"a parameter without the one it requires": {
			"GET", "/pools?type=qemu", nil, 400,
			"Parameter verification failed. map[poolid:missing property required by 'type']",
		},
		"a repeated parameter": {
			"POST", "/nodes/pve1/qemu/101/clone", form("newid", "200", "name", "a", "name", "b"), 400,
			"Parameter verification failed. map[name:type check ('string') failed - got ARRAY]",
		},
		"an ACL of an unknown user's token": {
			"PUT", "/access/acl", rule("Reader", "tokens", "bob@pve!his"), 500,
			"ACL update failed: no such user ('bob@pve')",
		},
		"deleting an ACL of an unknown role": {
			"PUT", "/access/acl", rule("None", "users", "ann@pve", "delete", "1"), 500,
			"ACL update failed: role 'None' does not exist",
		},
		"deleting an ACL of an unknown group": {
			"PUT", "/access/acl", rule("Reader", "groups", "ops", "delete", "1"), 500,
			"ACL update failed: group 'ops' does not exist",
		},
		"deleting a missing ACL": {
			"PUT", "/access/acl", rule("Reader", "users", "ann@pve", "delete", "1"), 200, "OK",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			a := l.call(t, tc.method, tc.path, tc.form)
			assert.Equal(t, tc.status, a.status)
			assert.Contains(t, a.reason+" "+fmt.Sprint(a.errors), tc.want)
		})
	}
}
