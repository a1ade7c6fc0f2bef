package hosts

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/verbtest"
)

// runHost executes a verb about hosts.
func runHost(t *testing.T, verb string, req any) (stdout, stderr string, err error) {
	t.Helper()

	return verbtest.Run(t, Commands(), verb, req, verbtest.Never)
}

// TestRequestsAreJudged names all that is wrong with a request at once.
func TestRequestsAreJudged(t *testing.T) {
	t.Parallel()

	const noKey = "hostKey: is missing: set what `ssh-keyscan -t ed25519 127.0.0.1` prints after the address, or acceptAnyHostKey"

	for name, test := range map[string]struct {
		verb, request string
		problems      []string
	}{
		"no host": {"facts", `{}`, []string{"hosts: is missing: set at least one"}},
		"facts": {
			"facts", `{"privateKey":"hunter2","dialTimeout":"0s","stepTimeout":"soon","hosts":[
				{"address":"127.0.0.1","port":70000},{"name":"pve2","address":"127.0.0.2","hostKey":"AAAA","script":"x"}]}`,
			[]string{
				`dialTimeout: "0s" is not a duration above zero: write it like 15m or 2s`,
				`stepTimeout: "soon" is not a duration above zero: write it like 15m or 2s`,
				"hosts[0].name: is missing: set the host's name in Proxmox",
				"hosts[0].port: 70000 is not a TCP port: use 1 to 65535, or omit it for 22", "hosts[0]." + noKey,
				"hosts[0].script: is missing: set the script that prints the facts",
				"hosts[1].hostKey: is not a public key: set its type and base64 as ssh-keyscan prints them after the address",
			},
		},
		"run": {"run", `{"privateKey":"hunter2","host":{"name":"pve1","address":"pve1","acceptAnyHostKey":true}}`, []string{
			`host.address: "pve1" is not an IP address: set the host's`, "command: is missing: set what the host's shell runs",
		}},
		"settle": {"settle", `{"waitTimeout":"-1s","host":{"name":"pve1","address":"127.0.0.1"}}`, []string{
			`waitTimeout: "-1s" is not a duration above zero: write it like 15m or 2s`, "host." + noKey,
			"host.script: is missing: set the script of the host's preparation",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			stdout, _, err := runHost(t, test.verb, json.RawMessage(test.request))
			require.Error(t, err)
			assert.Equal(t, test.problems, strings.Split(err.Error(), "\n  ")[1:])
			assert.Empty(t, stdout)
			assert.NotContains(t, err.Error(), "hunter2")
		})
	}
}

// TestLoginsThatCannotBe: a key that is none, and one that nobody is asked the passphrase of.
func TestLoginsThatCannotBe(t *testing.T) {
	t.Parallel()

	for key, says := range map[string]string{
		"hunter2":    "the private key cannot be read: provide it in PEM form",
		encrypted(t): "the private key is encrypted: use one without a passphrase, or add it to the SSH agent",
	} {
		h := hostShell{request.Shell{Name: "pve1", Address: "127.0.0.1", AcceptAnyHostKey: true}}
		r := runRequest{PrivateKey: key, Host: h, Command: "true"}
		require.Empty(t, r.Problems())
		assert.Equal(t, hostLimits{dial: 15 * time.Second, step: 2 * time.Minute}, r.limits)

		_, _, err := runHost(t, "run", r)
		require.ErrorContains(t, err, says)
		assert.NotContains(t, err.Error(), "hunter2")
	}
}
