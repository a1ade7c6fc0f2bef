package proxmox_test

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	pve "github.com/luthermonson/go-proxmox"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
)

// as makes a request with another token.
func (l *lab) as(t *testing.T, token, method, path string, form url.Values) answer {
	t.Helper()

	req, err := http.NewRequestWithContext(t.Context(), method, l.url+path, strings.NewReader(form.Encode()))
	require.NoError(t, err)
	req.Header.Set("Authorization", "PVEAPIToken="+token)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")

	return l.do(t, req)
}

// asRoot makes a request with a ticket of root's, for what no token may do.
func (l *lab) asRoot(t *testing.T, method, path string, form url.Values) answer {
	t.Helper()

	session, ok := l.call(
		t, "POST", "/access/ticket", url.Values{"username": {"root@pam"}, "password": {password}},
	).data.(map[string]any)
	require.True(t, ok)

	req, err := http.NewRequestWithContext(t.Context(), method, l.url+path, strings.NewReader(form.Encode()))
	require.NoError(t, err)
	req.Header.Set("Cookie", fmt.Sprint("PVEAuthCookie=", session["ticket"]))
	req.Header.Set("CSRFPreventionToken", fmt.Sprint(session["CSRFPreventionToken"]))
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")

	return l.do(t, req)
}

// TestAnAdministratorAtWork does with a published client what pveum does: a user, a role, a separated token and their
// rules.
func TestAnAdministratorAtWork(t *testing.T) {
	t.Parallel()

	l := newLab(t)
	ctx := t.Context()
	//nolint:gosec // the lab's own certificate
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	t.Cleanup(transport.CloseIdleConnections)

	client := pve.NewClient(
		l.url, pve.WithAPIToken("root@pam!lab", "secret"), pve.WithHTTPClient(&http.Client{Transport: transport}),
	)

	require.NoError(t, client.NewGroup(ctx, "ops", "operators"))
	require.NoError(
		t, client.NewUser(ctx, &pve.NewUser{UserID: "ann@pve", Password: "password", Enable: true, Groups: []string{"ops"}}),
	)
	require.NoError(t, client.NewRole(ctx, "Reader", "VM.Audit"))
	require.ErrorContains(t, client.NewRole(ctx, "Watcher", "VM.Monitor"), "400")

	ann, err := client.User(ctx, "ann@pve")
	require.NoError(t, err)
	assert.Equal(t, []string{"ops"}, ann.Groups)

	made, err := ann.NewAPIToken(ctx, pve.Token{TokenID: "own", Privsep: true})
	require.NoError(t, err)
	assert.Equal(t, "ann@pve!own", made.FullTokenID)

	own := made.FullTokenID + "=" + made.Value

	require.NoError(
		t, client.UpdateACL(ctx, pve.ACLOptions{Path: "/vms", Roles: "Reader", Groups: "ops", Propagate: true}),
	)

	for _, vmid := range []string{"100", "101"} {
		require.Equal(t, "OK", l.task(t, "POST", "/nodes/pve1/qemu", form("vmid", vmid, "name", "vm"+vmid)))
	}

	assert.JSONEq(
		t, `{"data":[]}`, l.as(t, own, "GET", "/cluster/resources?type=vm", nil).raw,
		"a separated token has nothing of its own yet",
	)

	require.NoError(
		t,
		client.UpdateACL(ctx, pve.ACLOptions{Path: "/vms/100", Roles: "PVEVMAdmin", Tokens: "ann@pve!own", Propagate: true}),
	)

	listed := l.as(t, own, "GET", "/cluster/resources?type=vm", nil).raw
	assert.Contains(t, listed, "qemu/100")
	assert.NotContains(t, listed, "qemu/101")

	has, err := client.Permissions(ctx, &pve.PermissionsOptions{UserID: "ann@pve!own", Path: "/vms/100"})
	require.NoError(t, err)
	assert.Equal(t, pve.Permissions{"/vms/100": {"VM.Audit": true}}, has, "what the token and its user have")

	assert.Equal(
		t, "Permission check failed (/vms/100, VM.PowerMgmt)",
		l.as(t, own, "POST", "/nodes/pve1/qemu/100/status/start", nil).reason,
	)
	assert.Equal(t, 200, l.as(t, own, "GET", "/nodes/pve1/qemu/100/config", nil).status)

	require.NoError(t, ann.DeleteAPIToken(ctx, "own"))
	assert.Equal(t, 401, l.as(t, own, "GET", "/nodes/pve1/qemu/100/config", nil).status)

	acl, err := client.ACL(ctx)
	require.NoError(t, err)
	require.Len(t, acl, 1, "a token takes its rules along")
	assert.Equal(t, "ops", acl[0].UGID)
}

// TestAccountsAreRefused asks as root for what Proxmox does not do with users, roles and rules.
func TestAccountsAreRefused(t *testing.T) {
	t.Parallel()

	l := newLab(t)
	l.dc.AddUser("ann@pve", "password")
	l.dc.AddToken("ann@pve", "hers", "s")
	require.NoError(t, l.dc.AddRole("Reader", "VM.Audit"))

	rule := func(role string, pairs ...string) url.Values {
		return form(append(pairs, "path", "/vms", "roles", role)...)
	}

	for name, test := range map[string]struct {
		method, path string
		params       url.Values
		says         string
	}{
		"a password by a token": {
			"PUT", "/access/password", form("userid", "ann@pve", "password", "a longer one"),
			"Permission check failed (URI '/access/password' not available with API token, need proper ticket.",
		},
		"a role of Proxmox' own": {
			"POST", "/access/roles", form("roleid", "pveReader", "privs", "VM.Audit"),
			"cannot use role ID starting with the (case-insensitive) 'PVE' namespace",
		},
		"a rule of no role": {
			"PUT", "/access/acl", rule("None", "users", "ann@pve"), "ACL update failed: role 'None' does not exist",
		},
		"a rule of nobody": {
			"PUT", "/access/acl", rule("Reader", "users", "bob@pve"), "ACL update failed: user 'bob@pve' does not exist",
		},
		"a rule of no token": {
			"PUT", "/access/acl", rule("Reader", "tokens", "ann@pve!his"),
			"ACL update failed: no such token 'his' for user 'ann@pve'",
		},
		"a rule of nobody's token": {
			"PUT", "/access/acl", rule("Reader", "tokens", "bob@pve!his"), "ACL update failed: no such user ('bob@pve')",
		},
		"a rule of no group": {
			"PUT", "/access/acl", rule("Reader", "groups", "ops"), "ACL update failed: group 'ops' does not exist",
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

	assert.Equal(
		t, 200, l.asRoot(t, "PUT", "/access/password", form(
			"userid", "ann@pve", "password", "a longer one", "confirmation-password", password,
		)).status,
	)
	assert.True(t, l.dc.CheckPassword("ann@pve", "a longer one"))
}

// TestForbidden asks for everything with a token that may do nothing, or little.
func TestForbidden(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		role         string // on /
		method, path string
		params       url.Values
		status       int
		reason       string
	}{
		"a configuration": {
			"", "GET", "/nodes/pve1/qemu/100/config", nil, 403, "Permission check failed (/vms/100, VM.Audit)",
		},
		"before its parameters": {
			"", "PUT", "/nodes/pve1/qemu/100/resize", nil, 403, "Permission check failed (/vms/100, VM.Config.Disk)",
		},
		"one of several": {
			"", "GET", "/nodes/pve1/qemu/100/agent/network-get-interfaces", nil, 403,
			"Permission check failed (/vms/100, VM.GuestAgent.Audit|VM.GuestAgent.Unrestricted)",
		},
		"a deletion": {
			"PVEVMUser", "DELETE", "/nodes/pve1/qemu/100", nil, 403, "Permission check failed (/vms/100, VM.Allocate)",
		},
		"a clone to a VMID": {
			"PVETemplateUser", "POST", "/nodes/pve1/qemu/100/clone", form("newid", "200"), 403, "Permission check failed",
		},
		"a URL's metadata": {
			"PVEAuditor", "GET", "/nodes/pve1/query-url-metadata?url=https://x.test/", nil, 403, "Permission check failed",
		},
		"a download": {
			"PVEDatastoreUser", "POST", "/nodes/pve1/storage/local/download-url", nil, 403,
			"Permission check failed (/storage/local, Datastore.AllocateTemplate)",
		},
		"a download from anywhere": {
			"PVEAdmin", "POST", "/nodes/pve1/storage/local/download-url", nil, 403, "Permission check failed",
		},
		"a storage's definition": {
			"PVEAuditor", "GET", "/storage/local", nil, 403, "Permission check failed (/storage/local, Datastore.Allocate)",
		},
		"a mapping": {
			"PVEAdmin", "POST", "/cluster/mapping/pci", form("id", "gpu", "map", "x"), 403,
			"Permission check failed (/mapping/pci, Mapping.Modify)",
		},
		"a role": {
			"PVEAdmin", "POST", "/access/roles", form("roleid", "r"), 403, "Permission check failed (/access, Sys.Modify)",
		},
		"a user": {
			"PVEAuditor", "POST", "/access/users", form("userid", "x@pve"), 403,
			"Permission check failed (/access/realm/pve, Realm.AllocateUser)",
		},
		"a rule": {
			"PVEAuditor", "PUT", "/access/acl", form("path", "/vms", "roles", "PVEAdmin", "users", "ann@pve"), 403,
			"Permission check failed (/vms, Permissions.Modify)",
		},
		"a rule beyond one's own": {
			"PVEVMAdmin", "PUT", "/access/acl", form("path", "/vms/100", "roles", "PVEAdmin", "users", "ann@pve"), 500,
			"ACL update failed: 400 Parameter verification failed.",
		},
		"a rule within one's own": {
			"PVEVMAdmin", "PUT", "/access/acl", form("path", "/vms/100", "roles", "PVEVMUser", "users", "ann@pve"), 200, "OK",
		},
		"another's task": {
			"PVEVMUser", "GET", "/nodes/pve1/tasks/TASK/status", nil, 403, "Permission check failed (/nodes/pve1, Sys.Audit)",
		},
		"another's task, to audit": {"PVEAuditor", "GET", "/nodes/pve1/tasks/TASK/status", nil, 200, "OK"},
		"another's task, to stop": {
			"PVEAuditor", "DELETE", "/nodes/pve1/tasks/TASK", nil, 403, "Permission check failed (/nodes/pve1, Sys.Modify)",
		},
		"what everyone may see":     {"", "GET", "/version", nil, 200, "OK"},
		"lists, which are filtered": {"", "GET", "/nodes/pve1/storage", nil, 200, "OK"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			l := newLab(t)
			task, ok := l.call(t, "POST", "/nodes/pve1/qemu", form("vmid", "100")).data.(string)
			require.True(t, ok)
			_, err := l.dc.WaitTask(t.Context(), task)
			require.NoError(t, err)

			l.dc.AddUser("ann@pve", "password")
			l.dc.AddToken("ann@pve", "hers", "s")

			if test.role != "" {
				require.NoError(
					t, l.dc.SetACL(datacentre.ACL{Path: "/", Kind: "user", ID: "ann@pve", Role: test.role, Propagate: true}),
				)
			}

			got := l.as(
				t, "ann@pve!hers=s", test.method, strings.Replace(test.path, "TASK", strings.ReplaceAll(task, "!", "%21"), 1),
				test.params,
			)
			assert.Equal(t, test.status, got.status, got.raw)
			assert.Equal(t, test.reason, got.reason)
		})
	}
}
