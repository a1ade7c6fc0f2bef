package verbs

import (
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/goldentest"
	"talos-proxmox/talosops/clustertest"
	"talos-proxmox/talosops/verbtest"
)

// rejectRequest returns a verb's error about an invalid request.
func rejectRequest(t *testing.T, verb, request string) error {
	t.Helper()

	root := verbtest.NewRoot(Commands())
	root.SetArgs(strings.Fields(verb))
	root.SetIn(strings.NewReader(request))
	root.SetOut(io.Discard)
	root.SetErr(io.Discard)

	err := root.ExecuteContext(t.Context())
	require.Error(t, err)

	return err
}

// TestRequestsAreValidated: the error names everything that is wrong with a request, and no secret of it.
func TestRequestsAreValidated(t *testing.T) {
	t.Parallel()

	golden := goldentest.NewCases(t)

	const node = `"controlPlanes":[{"name":"cp-1","address":"127.0.9.1"}]`

	for verb, request := range map[string]string{
		"wait": `{"timeout":"soon","interval":"2","talosconfig":"contexts: hunter2","kubeconfig":"clusters: hunter2",
				"workers":[{"name":"w-1","address":""},{"address":"127.0.9.5"},{"name":"w-1","address":"127.0.9.5"}],
				"versions":[{"node":"w-2"}],
				"gpus":[{"node":"w-1","count":1},{"node":"w-9"},{"node":"w-1","count":2},{"node":"w-1","count":2,"resource":"a/b"}]}`,
		"wait --timeout 0s --interval -1s": `{` + node + `}`,
		"status":                           `{` + node + `,"configurations":{"w-9":"hunter2"},"backup":{"maxAge":"long"}}`,
		"mark": `{` + node + `,"kubeconfig":"hunter2","marks":[{"node":"a"},{"node":"a"},{"node":""},{"node":"b","taints":[
				{"key":"k","effect":"Never"},{"key":"k","effect":"NoExecute"},{"key":"k","value":"v","effect":"NoExecute"}]}]}`,
		"access":     `{` + node + `,"kubeconfig":"hunter2","clusterRoles":{"view":[],"":["a"],"edit":[""]}}`,
		"autoscale":  `{` + node + `,"kubeconfig":"hunter2","proxmox":{"apiToken":"hunter2"},"userData":"{{hunter2"}`,
		"proxmox":    `{` + node + `,"tokens":{"csi":"hunter2","other":"a@pve!b=hunter2"}}`,
		"kubernetes": `{"kubernetesVersion":"1.35","backup":{"name":"","directory":"","recipients":[],"keep":-1}}`,
		"snapshot":   `{` + node + `,"name":"a/b","recipients":["AGE-SECRET-KEY-1QQQQ"],"keep":1}`,
		"restore":    `{` + node + `,"cluster":"prod","confirm":"yes","identities":"AGE-SECRET-KEY-1QQ"}`,
		"leave":      `{"node":{}}`,
		"image":      `{"proxmox":{"tmpDir":"hunter2"},"datastore":"local"}`,
		"template":   `{"proxmox":{"apiToken":"hunter2"},"vmid":-1,"name":"talos"}`,
		"firewall":   `{"proxmox":{"apiToken":"hunter2"},"vmid":-1}`,
		"volume":     `{"proxmox":{"apiToken":"hunter2"},"vmid":-1,"name":"data"}`,
		"ha":         `{"proxmox":{"apiToken":"hunter2"},"vmid":-1,"apart":[1]}`,
		"rotate":     `{` + node + `,"next":"hunter2"}`,
		"upgrade": `{` + node + `,"workers":[{"name":"w-1","address":"127.0.9.4"}],"parallelWorkers":-1,
				"gpus":[{"node":"w-8","count":1}],"images":[
				{"node":"w-1","installer":"x","talosVersion":"v1.12.6","schematic":"a"},
				{"node":"w-1","installer":"x","talosVersion":"v1.12.6","schematic":"a"},
				{"node":"w-9","installer":"x","talosVersion":"v1.12.6"}]}`,
	} {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()

			err := rejectRequest(t, verb, request)
			golden.Equal(t, verb, err)
			assert.NotContains(t, err.Error(), "hunter2")
			assert.NotContains(t, err.Error(), "AGE-SECRET")
		})
	}
}

// TestInvalidRequests: the error about input that is no request names no secret of it.
func TestInvalidRequests(t *testing.T) {
	t.Parallel()

	golden := goldentest.NewCases(t)

	kubeconfig := clustertest.NewAuthority(t).Kubeconfig(t, clustertest.Endpoint)
	changed := func(old, with string) string {
		return `{"kubeconfig":` + toJSON(strings.Replace(kubeconfig, old, with, 1)) + `}`
	}

	for name, test := range map[string]struct{ verb, request string }{
		"nothing":                 {"wait", ""},
		"no JSON":                 {"wait", "talosconfig:"},
		"an unknown field":        {"wait", `{"nodes": []}`},
		"two requests":            {"wait", `{} {}`},
		"an argument":             {"wait now", `{}`},
		"a prefix for an address": {"wait", `{"workers":[{"name":"w-1","address":"127.0.9.4/24"}]}`},
		"a talosconfig without the context it names": {"wait", `{"talosconfig":"context: a\ncontexts: {}\n"}`},
		"a talosconfig without a certificate": {
			"wait", `{"talosconfig":"context: a\ncontexts: {a: {ca: hunter2, crt: hunter2, key: hunter2}}"}`,
		},
		"a kubeconfig with a broken key": {"wait", changed("client-key-data: ", "client-key-data: hunter2")},
		"a kubeconfig without its user":  {"wait", changed("user: admin@test", "user: nobody")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			err := rejectRequest(t, test.verb, test.request)
			golden.Equal(t, name, err)
			assert.NotContains(t, err.Error(), "hunter2")
			verbtest.AssertNoSecrets(t, kubeconfig, err.Error())
		})
	}
}
