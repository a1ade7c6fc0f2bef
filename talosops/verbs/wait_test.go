package verbs

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/clustertest"
	"talos-proxmox/talosops/verbtest"
)

func TestWaitOverRealConnections(t *testing.T) {
	t.Parallel()

	served := clustertest.Serve(t, &clustertest.TalosNode{}, clustertest.HealthyAPI())
	req := &waitRequest{Wait: request.Wait{
		Common: served.Common, Talosconfig: served.Talosconfig, Kubeconfig: served.Kubeconfig,
		KubernetesVersion: "v1.35.0", Versions: []request.Versions{{Node: "cp-1", Talos: "v1.12.7", Schematic: "376567"}},
	}}
	stdout, stderr, err := run(t, "wait", req, verbtest.NoInterrupt, "--interval", "10ms")
	require.NoError(t, err, stderr)

	asked := regexp.MustCompile(`"asked":"20[^"]+Z"`)
	assert.Regexp(t, asked, stdout)

	const versions = `"nodes":{"cp-1":{"talos":"v1.12.6","schematic":"376567","kubelet":"v1.35.0","apiServer":"v1.35.1"}}}` + "\n"
	assert.Equal(
		t, `{"healthy":true,"etcdMembers":["cp-1"],"asked":"…",`+versions, asked.ReplaceAllString(stdout, `"asked":"…"`),
	)
	assert.Contains(t, stderr, "healthy: etcd members: 1; nodes: 1\n")
	assert.Contains(t, stderr, "cp-1: versions: runs Talos v1.12.6 (planned: v1.12.7), API server v1.35.1 (planned: v1.35.0)\n")

	stdout, stderr, err = run(t, "versions", req, verbtest.NoInterrupt)
	require.NoError(t, err, stderr)
	assert.Equal(t, `{"asked":"…",`+versions, asked.ReplaceAllString(stdout, `"asked":"…"`))
}

func TestWaitReportsErrorsOfRealConnections(t *testing.T) {
	t.Parallel()

	refuse := func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = fmt.Fprint(w, "[+]ping ok\n[-]etcd failed: reason withheld\nreadyz check failed\n")
	}
	served := clustertest.Serve(t, &clustertest.TalosNode{}, http.HandlerFunc(refuse))
	healthy := waitRequest{Wait: request.Wait{
		Common: served.Common, Talosconfig: served.Talosconfig, Kubeconfig: served.Kubeconfig,
	}}

	for name, test := range map[string]struct {
		change func(*waitRequest)
		want   string
	}{
		"the API server's own words": {
			func(*waitRequest) {},
			"cp-1: Kubernetes API: is not ready on " + served.Address.String() + ": 500 Internal Server Error: etcd failed: reason withheld",
		},
		"no one at the address": {
			func(r *waitRequest) {
				r.Workers = []request.Node{{Name: "w-1", Address: netip.MustParseAddr("127.0.0.253")}}
			},
			"w-1: services: Talos does not answer on 127.0.0.253",
		},
		"another Talos authority": {
			func(r *waitRequest) { r.Talosconfig = clustertest.NewAuthority(t).Talosconfig(t) }, "signed by unknown authority",
		},
		"another Kubernetes authority": {func(r *waitRequest) {
			r.Kubeconfig = clustertest.NewAuthority(t).Kubeconfig(t, clustertest.Endpoint)
		}, "signed by unknown authority"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			req := healthy
			test.change(&req)
			stdout, stderr, err := run(t, "wait", &req, test.want, "--interval", "10ms", "--timeout", "1m")
			require.ErrorContains(t, err, "interrupted")
			assert.Contains(t, stderr, test.want)
			assert.Empty(t, stdout)
			verbtest.AssertNoSecrets(t, req.Talosconfig+"\n"+req.Kubeconfig, stderr+err.Error())
		})
	}
}

func TestInterruptBeforeARequest(t *testing.T) {
	t.Parallel()

	in, out := io.Pipe()
	defer out.Close()

	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	root := verbtest.NewRoot(Commands())
	root.SetArgs([]string{"wait"})
	root.SetIn(in)
	require.ErrorContains(t, root.ExecuteContext(ctx),
		"interrupted before a request came on standard input: see talosops wait --help")
}

func TestVersionsLeavesOutUnreachableNodes(t *testing.T) {
	t.Parallel()

	served := clustertest.Serve(t, &clustertest.TalosNode{}, http.NotFoundHandler())
	stdout, stderr, err := run(t, "versions", request.Wait{
		Common: served.Common, Talosconfig: served.Talosconfig, Kubeconfig: served.Kubeconfig,
		Workers: []request.Node{{Name: "w-1", Address: netip.MustParseAddr("127.0.0.253")}},
	}, verbtest.NoInterrupt)
	require.NoError(t, err)
	assert.Contains(t, stdout, `"nodes":{"cp-1":{"talos":"v1.12.6","schematic":"376567"}}}`)
	assert.Contains(t, stderr, "cp-1: versions: does not report its Kubernetes API version: 404 Not Found: 404 page not found\n")
	assert.Contains(t, stderr, "w-1: versions: does not report its Talos version: ")
}
