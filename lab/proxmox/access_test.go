package proxmox_test

import (
	"fmt"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
)

// TestAccountsAreRefused are refusals that no call of the recording meets.
func TestAccountsAreRefused(t *testing.T) {
	t.Parallel()

	l := newLab(t)
	l.dc.Put(datacentre.Users, "ann@pve", datacentre.Config{"password": "password"})
	l.dc.Put(datacentre.Tokens, "ann@pve!hers", datacentre.Config{"value": "s", "privsep": "0"})
	require.NoError(t, l.dc.PutRole("Reader", "VM.Audit"))

	rule := func(role string, pairs ...string) url.Values {
		return form(append(pairs, "path", "/vms", "roles", role)...)
	}

	for name, test := range map[string]struct {
		method, path string
		params       url.Values
		says         string
	}{
		"a rule of nobody's token": {
			"PUT", "/access/acl", rule("Reader", "tokens", "bob@pve!his"), "ACL update failed: no such user ('bob@pve')",
		},
		"no more rule of no role": {
			"PUT", "/access/acl", rule("None", "users", "ann@pve", "delete", "1"),
			"ACL update failed: role 'None' does not exist",
		},
		"no more rule of no group": {
			"PUT", "/access/acl", rule("Reader", "groups", "ops", "delete", "1"),
			"ACL update failed: group 'ops' does not exist",
		},
		"a rule that is no more yet": {"PUT", "/access/acl", rule("Reader", "users", "ann@pve", "delete", "1"), "OK"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			got := l.call(t, test.method, test.path, test.params)
			assert.Contains(t, got.reason+" "+fmt.Sprint(got.errors), test.says)
		})
	}
}
