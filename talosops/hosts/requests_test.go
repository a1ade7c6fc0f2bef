package hosts

import (
	"encoding/json"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/goldentest"
	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/verbtest"
)

// runHost executes a verb about hosts.
func runHost(t *testing.T, verb string, req any) (stdout, stderr string, err error) {
	t.Helper()

	return verbtest.Run(t, Commands(), verb, req, verbtest.NoInterrupt)
}

// TestRequestsAreValidated: the error names everything that is wrong with a request.
func TestRequestsAreValidated(t *testing.T) {
	t.Parallel()

	golden := goldentest.NewCases(t)

	for name, test := range map[string]struct{ verb, request string }{
		"no host": {"facts", `{}`},
		"facts": {
			"facts",
			`{"privateKey":"hunter2","dialTimeout":"0s","stepTimeout":"soon","hosts":[
				{"address":"127.0.0.1","port":70000},{"name":"pve2","address":"127.0.0.2","hostKey":"AAAA","parameters":"x"}]}`,
		},
		"run": {
			"run", `{"privateKey":"hunter2","host":{"name":"pve1","acceptAnyHostKey":true}}`,
		},
		"run at a name": {"run", `{"privateKey":"hunter2","host":{"name":"pve1","address":"pve1"}}`},
		"settle":        {"settle", `{"waitTimeout":"-1s","host":{"name":"pve1","address":"127.0.0.1"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			stdout, _, err := runHost(t, test.verb, json.RawMessage(test.request))
			require.Error(t, err)
			golden.Equal(t, name, err)
			assert.Empty(t, stdout)
			assert.NotContains(t, err.Error(), "hunter2")
		})
	}
}

// TestUnusableLogins: an invalid key, and one whose passphrase nobody can be asked for.
func TestUnusableLogins(t *testing.T) {
	t.Parallel()

	for key, says := range map[string]string{
		"hunter2":    "the private key cannot be read: provide it in PEM form",
		encrypted(t): "the private key is encrypted: use one without a passphrase, or add it to the SSH agent",
	} {
		h := hostShell{request.Shell{Name: "pve1", Address: netip.MustParseAddr("127.0.0.1"), AcceptAnyHostKey: true}}
		r := runRequest{PrivateKey: key, Host: h, Command: "true"}
		require.Empty(t, r.Problems())
		assert.Equal(t, hostLimits{dial: 15 * time.Second, step: 2 * time.Minute}, r.limits)

		_, _, err := runHost(t, "run", r)
		require.ErrorContains(t, err, says)
		assert.NotContains(t, err.Error(), "hunter2")
	}
}
