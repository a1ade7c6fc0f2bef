package verbs

import (
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/talosops/clustertest"
	"talos-proxmox/talosops/verbtest"
)

// refused is what a verb says of a request that it does not take.
func refused(t *testing.T, verb, request string, args ...string) error {
	t.Helper()

	root := verbtest.Root(Commands())
	root.SetArgs(append([]string{verb}, args...))
	root.SetIn(strings.NewReader(request))
	root.SetOut(io.Discard)
	root.SetErr(io.Discard)

	err := root.ExecuteContext(t.Context())
	require.Error(t, err)

	return err
}

// TestRequestsAreJudged names all that is wrong with a request at once, and no secret of it.
func TestRequestsAreJudged(t *testing.T) {
	t.Parallel()

	const (
		node       = `"controlPlanes":[{"name":"cp-1","address":"127.0.9.1"}]`
		talos      = "talosconfig: it is not a Talos client configuration with a current context, certificate and key: send the talosconfig output of the stack"
		kubernetes = "kubeconfig: it is not a kubeconfig with a current context, an https server, its authority and a client " +
			"certificate: send the kubeconfig output of the stack"
		noNodes = "controlPlanes: is missing: set at least one"
		unknown = " is none of controlPlanes and workers: use the name of one of them"
	)

	for name, test := range map[string]struct {
		verb, request string
		args          []string
		problems      []string
	}{
		"wait": {
			"wait", `{"timeout":"soon","interval":"2","talosconfig":"contexts: hunter2","kubeconfig":"clusters: hunter2",
				"workers":[{"name":"w-1","address":"127.0.9.4/24"},{"address":"127.0.9.5"},{"name":"w-1","address":"127.0.9.5"}],
				"versions":[{"node":"w-2"}],
				"gpus":[{"node":"w-1","count":1},{"node":"w-9"},{"node":"w-1","count":2},{"node":"w-1","count":2,"resource":"a/b"}]}`, nil,
			[]string{
				`timeout: "soon" is not a duration above zero: write it like 15m or 2s`,
				`interval: "2" is not a duration above zero: write it like 15m or 2s`, talos, kubernetes, noNodes,
				`workers[0].address: "127.0.9.4/24" is not an IP address: set the node's own, without a prefix length`,
				"workers[1].name: is missing: set the node's host name",
				`workers[2].name: "w-1" is already at workers[0]: list each node once`,
				`workers[2].address: "127.0.9.5" is already at workers[1]: list each node once`,
				`gpus[1].node: "w-9"` + unknown, "gpus[1].count: 0 GPUs are nothing to wait for: use at least 1",
				`gpus[2]: nvidia.com/gpu of "w-1" is already at gpus[0]: list it once`, `versions[0].node: "w-2"` + unknown,
			},
		},
		"wait, no time": {
			"wait", `{` + node + `}`, []string{"--timeout", "0s", "--interval", "-1s"}, []string{
				`timeout: "0s" is not a duration above zero: write it like 15m or 2s`,
				`interval: "-1s" is not a duration above zero: write it like 15m or 2s`, talos, kubernetes,
			},
		},
		"status": {
			"status", `{` + node + `,"configurations":{"w-9":"hunter2"},"backup":{"maxAge":"long"}}`, nil, []string{
				talos, kubernetes, `configurations: "w-9"` + unknown,
				`backup.maxAge: "long" is not a duration above zero: write it like 15m or 2s`,
			},
		},
		"mark": {
			"mark", `{` + node + `,"kubeconfig":"hunter2","marks":[{"node":"a"},{"node":"a"},{"node":""},{"node":"b","taints":[
				{"key":"k","effect":"Never"},{"key":"k","effect":"NoExecute"},{"key":"k","value":"v","effect":"NoExecute"}]}]}`, nil,
			[]string{
				kubernetes, `marks[1].node: "a" is already at marks[0]: list each node once`,
				"marks[2].node: is missing: set the node's host name",
				"marks[3].taints[0]: it needs a key and an effect: NoSchedule, PreferNoSchedule or NoExecute",
				"marks[3].taints[2]: there is one with this key and effect already: list each once",
			},
		},
		"proxmox": {
			"proxmox", `{` + node + `,"tokens":{"csi":"hunter2","other":"a@pve!b=hunter2"}}`, nil, []string{
				kubernetes, "region and url: are missing beside tokens: set both, such as https://10.0.0.2:8006/api2/json",
				"tokens.csi: is not of the form user@realm!name=secret", "tokens.other: is for nothing that is known: use csi or ccm",
			},
		},
		"kubernetes": {
			"kubernetes", `{"kubernetesVersion":"1.35","backup":{"name":"","directory":"","recipients":[],"keep":-1}}`, nil,
			[]string{
				talos, noNodes, `kubernetesVersion: "1.35" is not a version of Kubernetes: write it in full, such as v1.37.2`,
				`backup.name: "" cannot begin a file's name: use that of the stack and the cluster`,
				"backup.directory: is missing: set where snapshots are kept",
				"backup.recipients: is missing: set at least one public key of age (age-keygen makes a pair)",
				"backup.keep: -1 is not a number of snapshots: use 0 for all, or more",
			},
		},
		"snapshot": {
			"snapshot", `{` + node + `,"name":"a/b","recipients":["AGE-SECRET-KEY-1QQQQ"],"keep":1}`, nil, []string{
				talos, `name: "a/b" cannot begin a file's name: use that of the stack and the cluster`,
				"directory: is missing: set where snapshots are kept",
				"recipients[0]: is a secret key, which must not stand here: set the public key of a new pair (age-keygen makes one)",
			},
		},
		"restore": {
			"restore", `{` + node + `,"cluster":"prod","confirm":"yes","identities":"AGE-SECRET-KEY-1QQ"}`, nil, []string{
				talos, "snapshot: is missing: set the path of a snapshot",
				`confirm: "yes" is not the cluster's name: a restore loses what was written since the snapshot; set "prod" to confirm it`,
			},
		},
		"leave": {"leave", `{"node":{"address":"x"}}`, nil, []string{
			talos, noNodes, "node.name: is missing: set the node that leaves",
			`node.address: "x" is not an IP address: set the node's own`,
		}},
		"rotate": {"rotate", `{` + node + `,"next":"hunter2"}`, nil, []string{
			talos, strings.Replace(talos, "talosconfig", "next", 1),
			"key: the new authority's key goes with a client of it under next: send both",
		}},
		"upgrade": {
			"upgrade", `{` + node + `,"workers":[{"name":"w-1","address":"127.0.9.4"}],"parallelWorkers":-1,
				"gpus":[{"node":"w-8","count":1}],"images":[
				{"node":"w-1","installer":"x","talosVersion":"v1.12.6","schematic":"a"},
				{"node":"w-1","installer":"x","talosVersion":"v1.12.6","schematic":"a"},
				{"node":"w-9","installer":"x","talosVersion":"v1.12.6"}]}`, nil, []string{
				talos, `images[1].node: "w-1" is already at images[0]: list each node once`, `images[2].node: "w-9"` + unknown,
				"images[2].schematic: is missing: set what w-9 has to run",
				"images: there is none of cp-1: set what every node has to run", `gpus[0].node: "w-8"` + unknown,
				"parallelWorkers: -1 is not a number of workers: use 1 or more, or leave it out for one",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			_, said, _ := strings.Cut(refused(t, test.verb, test.request, test.args...).Error(), "problems:\n  ")
			assert.Equal(t, test.problems, strings.Split(said, "\n  "))
			assert.NotContains(t, said, "hunter2")
			assert.NotContains(t, said, "AGE-SECRET")
		})
	}
}

// TestWhatIsNoRequest says so, without a secret.
func TestWhatIsNoRequest(t *testing.T) {
	t.Parallel()

	kubeconfig := clustertest.NewAuthority(t).Kubeconfig(t, "https://"+clustertest.VIP+":6443")
	changed := func(old, with string) string {
		return `{"kubeconfig":` + mustText(strings.Replace(kubeconfig, old, with, 1)) + `}`
	}

	for name, test := range map[string]struct {
		request, says string
		args          []string
	}{
		"nothing":          {"", "there is no request on standard input", nil},
		"no JSON":          {"talosconfig:", "not what it should be", nil},
		"an unknown field": {`{"nodes": []}`, `unknown field "nodes"`, nil},
		"two requests":     {`{} {}`, "more than one request", nil},
		"an argument":      {`{}`, `unknown command "now"`, []string{"now"}},
		"a talosconfig without the context it names": {
			`{"talosconfig":"context: a\ncontexts: {}\n"}`, "talosconfig: it is not", nil,
		},
		"a talosconfig without a certificate": {
			`{"talosconfig":"context: a\ncontexts: {a: {ca: hunter2, crt: hunter2, key: hunter2}}"}`, "talosconfig: it is not", nil,
		},
		"a kubeconfig with a broken key": {
			changed("client-key-data: ", "client-key-data: hunter2"), "kubeconfig: it is not", nil,
		},
		"a kubeconfig without its user": {changed("user: admin@test", "user: nobody"), "kubeconfig: it is not", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			err := refused(t, "wait", test.request, test.args...)
			require.ErrorContains(t, err, test.says)
			assert.NotContains(t, err.Error(), "hunter2")
			verbtest.AssertNoSecrets(t, kubeconfig, err.Error())
		})
	}
}
