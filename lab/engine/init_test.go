package engine_test

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/engine"
	"talos-proxmox/lab/server"
)

// initToken is a token that can read everything.
const initToken = "root@pam!init"

// initStack runs `talos-proxmox init` without a terminal, and returns its output and the content of the file.
func (w *world) initStack(stack, token string, arguments ...string) (stdout, stderr string, file []byte) {
	w.t.Helper()

	connection, err := w.lab.Connection()
	require.NoError(w.t, err)

	folder := w.t.TempDir()
	cmd := w.command(append([]string{"init", stack, "--yes"}, arguments...)...)
	cmd.Args = append(cmd.Args, "--project", folder) // the last one counts
	cmd.Dir = folder
	cmd.Env = append(cmd.Env, "PROXMOX_VE_ENDPOINT="+connection.Endpoint, "PROXMOX_VE_API_TOKEN="+token)

	var out, failed strings.Builder

	cmd.Stdout, cmd.Stderr = &out, &failed
	_ = cmd.Run() // the caller knows by the file

	file, err = os.ReadFile(filepath.Join(folder, "Pulumi."+stack+".yaml")) //nolint:gosec // the test's own
	if !os.IsNotExist(err) {
		require.NoError(w.t, err)
	}

	assert.NotContains(w.t, out.String()+failed.String()+string(file), token[strings.Index(token, "=")+1:])

	return out.String(), failed.String(), file
}

// auditor makes the token that `init` tells to make, and returns it with its secret.
func (w *world) auditor() string {
	w.t.Helper()

	w.lab.Data.Put(datacentre.Tokens, initToken, datacentre.Config{"value": "secret-of-the-auditor"})
	require.NoError(w.t, w.lab.Data.SetACL(datacentre.ACL{
		Path: "/", Kind: "token", ID: initToken, Role: "PVEAuditor", Propagate: true,
	}))

	return initToken + "=secret-of-the-auditor"
}

// TestInit proposes stacks by what labs have; check finds no problem in them, and they come up.
func TestInit(t *testing.T) {
	t.Parallel()

	gpu := "rtx-4000-sff-ada"

	for name, test := range map[string]struct {
		hosts     int
		arguments []string
		machines  []string
		up        bool
		hasGPU    bool
	}{
		"one host": {
			hosts: 2, arguments: []string{"--hosts", "pve2"}, machines: []string{"lab-cp-1"}, up: true,
		},
		"three hosts": {
			hosts: 4, arguments: []string{"--hosts", "pve2,pve3,pve4"},
			machines: []string{"lab-cp-1", "lab-cp-2", "lab-cp-3", "lab-general-1", "lab-general-2", "lab-general-3", "lab-gpu-1", "lab-gpu-2"},
			hasGPU:   true,
		},
		"one host with a GPU": {
			hosts: 1, machines: []string{"lab-cp-1", "lab-gpu-1"}, hasGPU: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			w := openWorld(t, server.Options{Speed: testSpeed, Hosts: test.hosts, Mappings: []string{gpu}})

			stdout, stderr, file := w.initStack("lab", w.auditor(), test.arguments...)
			require.NotEmpty(t, file, stderr)
			assert.NotContains(t, stdout, "Not read")
			assert.Contains(t, stdout, "talos-proxmox permissions lab")
			assert.Equal(t, test.hasGPU, strings.Contains(string(file), gpu))

			stack := string(file)
			if test.hasGPU {
				assert.Contains(t, stack, "# Not accepted yet: compare SHA256:")
			}

			planned := w.checkProposed(stack)
			for _, machine := range test.machines {
				assert.Contains(t, planned, machine)
			}

			if !test.up {
				return
			}

			w.up(w.forModel(stack))
			w.requireRunning(len(test.machines))
			w.up(w.forModel(stack), optup.ExpectNoChanges())
		})
	}
}

// forModel returns a stack file without what needs real Kubernetes.
func (w *world) forModel(stack string) string {
	w.t.Helper()

	rest, _, err := engine.ForKubernetesModel([]byte(stack))
	require.NoError(w.t, err)

	return string(rest)
}

// checkProposed runs `talos-proxmox check` for a stack that does not exist yet, which must find no problem. It returns
// the names of the planned machines.
func (w *world) checkProposed(stack string) string {
	w.t.Helper()

	_, err := w.preview(w.forModel(stack)) // makes the stack's backend
	require.NoError(w.t, err, w.output())

	stdout, stderr, status := w.commandOutput("check", "lab")
	assert.Zero(w.t, status, stdout+stderr)
	assert.Contains(w.t, stdout, "all fine", stdout)

	return w.output()
}

// TestInitRefusals names what is missing, and what an API answers that cannot be used.
func TestInitRefusals(t *testing.T) {
	t.Parallel()

	w := openWorld(t, server.Options{Speed: testSpeed, Hosts: 1})
	connection, err := w.lab.Connection()
	require.NoError(t, err)

	endpoint, err := url.Parse(connection.Endpoint)
	require.NoError(t, err)

	// The program's own token, without what the roles of single keys may read, may read little.
	for _, role := range auditingRoles() {
		require.NoError(t, w.lab.Data.PutRole(role, "Sys.Console"))
	}

	stdout, stderr, file := w.initStack("lab", connection.APIToken)
	require.NotEmpty(t, file, stderr)
	assert.Contains(t, stdout, "the name servers of pve1: needs Sys.Audit on /nodes/pve1")
	assert.Contains(t, string(file), "# Not read: the name servers of pve1: needs Sys.Audit on /nodes/pve1")
	assert.Contains(t, string(file), "# Not read: the addresses of hosts: needs Sys.Audit on /")
	assert.NotContains(t, string(file), "capacity")

	for want, tc := range map[string]struct {
		token     string
		arguments []string
		trust     string
	}{
		"refuses the credentials":                                        {token: "root@pam!none=wrong"},
		"nothing answers at " + endpoint.Hostname() + ":1":               {arguments: []string{"--endpoint", "https://" + endpoint.Hostname() + ":1/"}},
		"is not an API token; write it in full":                          {token: "secret"},
		"does not trust the Proxmox cluster's own certificate authority": {trust: os.DevNull},
		"this is not the port of Proxmox' API":                           {arguments: []string{"--endpoint", "https://" + strings.TrimPrefix(connection.FactoryURL, "http://")}},
		"--gateway: \"10.0.0.1\" is not an address in":                   {token: w.auditor(), arguments: []string{"--gateway", "10.0.0.1"}},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()

			token := tc.token
			if token == "" {
				token = w.auditor()
			}

			cmd := w.command(append([]string{"init", "other", "--yes"}, tc.arguments...)...)
			cmd.Env = append(cmd.Env, "PROXMOX_VE_ENDPOINT="+connection.Endpoint, "PROXMOX_VE_API_TOKEN="+token)

			if tc.trust != "" {
				cmd.Env = append(cmd.Env, "SSL_CERT_FILE="+tc.trust)
			}

			require.NoError(t, os.MkdirAll(cmd.Dir, 0o700))

			out, err := cmd.CombinedOutput()
			require.Error(t, err)
			assert.Contains(t, string(out), want)
			assert.NoFileExists(t, filepath.Join(cmd.Dir, "Pulumi.other.yaml"))
		})
	}
}
