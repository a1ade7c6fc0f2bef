package proxmoxve

import (
	"crypto/tls"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/permissions"
	"talos-proxmox/lab/datacentre"
	labserver "talos-proxmox/lab/server"
)

// escalationCalls are calls with which a token becomes root on a host, or Administrator, and the answer to the account
// of every stack.
func escalationCalls() map[string]struct {
	method, path, refusal string
	parameters            url.Values
} {
	type call = struct {
		method, path, refusal string
		parameters            url.Values
	}

	form := func(pairs ...string) url.Values {
		values := url.Values{}
		for i := 0; i < len(pairs); i += 2 {
			values.Set(pairs[i], pairs[i+1])
		}

		return values
	}

	return map[string]call{
		"a storage with the path of a host's folder": {
			http.MethodPost, "/storage", "Permission check failed (/storage, Datastore.Allocate)",
			form("storage", "mine", "type", "dir", "path", "/etc/cron.d", "content", "iso"),
		},
		"a mapping of any device": {
			http.MethodPost, "/cluster/mapping/pci", "Permission check failed (/mapping/pci, Mapping.Modify)",
			form("id", "mine", "map", "id=10de:27b0,node=pve1,path=0000:01:00.0"),
		},
		"a role": {
			http.MethodPost, "/access/roles", "Permission check failed (/access, Sys.Modify)",
			form("roleid", "mine", "privs", "Permissions.Modify"),
		},
		"its own role": {
			http.MethodPut, "/access/roles/TalosProxmox", "Permission check failed (/access, Sys.Modify)",
			form("privs", "Permissions.Modify"),
		},
		"a rule for all storages": {
			http.MethodPut, "/access/acl", "Permission check failed (/storage, Permissions.Modify)",
			form("path", "/storage", "roles", "TalosProxmox", "tokens", permissions.Token),
		},
		"a password of root": {
			http.MethodPut, "/access/users/root@pam", "Permission check failed (/access/groups, User.Modify)",
			form("comment", "mine"),
		},
	}
}

// TestTheTokenIsNotRoot makes the calls with the roles that every stack has, with the rules of earlier versions, and
// after they were replaced.
func TestTheTokenIsNotRoot(t *testing.T) {
	t.Parallel()

	dc, endpoint := newLab(t)
	require.NoError(t, labserver.GrantProgram(dc, "secret"))
	commonRolesOnly(dc)

	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // the lab's
	}}
	reason := func(method, path string, parameters url.Values) string {
		r, err := http.NewRequestWithContext(
			t.Context(), method, strings.TrimSuffix(endpoint, "/")+"/api2/json"+path, strings.NewReader(parameters.Encode()),
		)
		require.NoError(t, err)
		r.Header.Set("Authorization", "PVEAPIToken="+permissions.Token+"=secret")
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")

		answer, err := client.Do(r)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())

		_, text, _ := strings.Cut(answer.Status, " ")

		return text
	}

	for name, call := range escalationCalls() {
		assert.Equal(t, call.refusal, reason(call.method, call.path, call.parameters), name)
	}

	storage := escalationCalls()["a storage with the path of a host's folder"]

	rule := func(path string) datacentre.ACL {
		return datacentre.ACL{Path: path, Kind: "user", ID: permissions.User, Role: "TalosProxmox", Propagate: true}
	}
	broad := rule("/storage")
	ofToken := broad
	ofToken.Kind, ofToken.ID = "token", permissions.Token

	require.NoError(t, dc.SetACL(broad))
	require.NoError(t, dc.SetACL(ofToken))
	assert.Equal(t, "OK", reason(storage.method, storage.path, storage.parameters), "with the rule of earlier versions")

	require.NoError(t, dc.RemoveStorage("mine"))
	require.NoError(t, dc.DeleteACL(broad))
	require.NoError(t, dc.DeleteACL(ofToken))
	assert.Equal(t, storage.refusal, reason(storage.method, storage.path, storage.parameters))
}
