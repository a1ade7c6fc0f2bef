package verbs

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/clustertest"
	"talos-proxmox/talosops/verbtest"
)

func TestWaitOverRealConnections(t *testing.T) {
	t.Parallel()

	talos, kubernetes := clustertest.NewAuthority(t), clustertest.NewAuthority(t)
	address, port := clustertest.StartNode(t, talos, kubernetes, clustertest.HealthyAPI())
	req := &waitRequest{Wait: request.Wait{
		Common:            request.Common{ControlPlanes: []request.Node{{Name: "cp-1", Address: address}}},
		Talosconfig:       talos.Talosconfig(t),
		Kubeconfig:        kubernetes.Kubeconfig(t, "https://"+net.JoinHostPort(clustertest.VIP, port)),
		KubernetesVersion: "v1.35.0", Versions: []request.Versions{{Node: "cp-1", Talos: "v1.12.7", Schematic: "376567"}},
	}}
	stdout, stderr, err := run(t, "wait", req, verbtest.Never, "--interval", "10ms")
	require.NoError(t, err, stderr)

	asked := regexp.MustCompile(`"asked":"20[^"]+Z"`)
	assert.Regexp(t, asked, stdout)

	const versions = `"nodes":{"cp-1":{"talos":"v1.12.6","schematic":"376567","kubelet":"v1.35.0","apiServer":"v1.35.1"}}}` + "\n"
	assert.Equal(
		t, `{"healthy":true,"etcdMembers":["cp-1"],"asked":"…",`+versions, asked.ReplaceAllString(stdout, `"asked":"…"`),
	)
	assert.Contains(t, stderr, "healthy: etcd members: 1; nodes: 1\n")
	assert.Contains(t, stderr, "cp-1: versions: runs Talos v1.12.6 (planned: v1.12.7), API server v1.35.1 (planned: v1.35.0)\n")

	stdout, stderr, err = run(t, "versions", req, verbtest.Never)
	require.NoError(t, err, stderr)
	assert.Equal(t, `{"asked":"…",`+versions, asked.ReplaceAllString(stdout, `"asked":"…"`))
}

func TestWaitNamesWhatRealConnectionsSay(t *testing.T) {
	t.Parallel()

	talos, kubernetes := clustertest.NewAuthority(t), clustertest.NewAuthority(t)
	mux := http.NewServeMux()
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = fmt.Fprint(w, "[+]ping ok\n[-]etcd failed: reason withheld\nreadyz check failed\n")
	})
	address, port := clustertest.StartNode(t, talos, kubernetes, mux)
	healthy := waitRequest{Wait: request.Wait{
		Common:      request.Common{ControlPlanes: []request.Node{{Name: "cp-1", Address: address}}},
		Talosconfig: talos.Talosconfig(t),
		Kubeconfig:  kubernetes.Kubeconfig(t, "https://"+net.JoinHostPort(clustertest.VIP, port)),
	}}

	for name, test := range map[string]struct {
		change func(*waitRequest)
		want   string
	}{
		"the API server's own words": {
			func(*waitRequest) {},
			"cp-1: Kubernetes API: is not ready on " + address + ": 500 Internal Server Error: etcd failed: reason withheld",
		},
		"no one at the address": {
			func(r *waitRequest) { r.Workers = []request.Node{{Name: "w-1", Address: "127.0.0.253"}} },
			"w-1: services: Talos does not answer on 127.0.0.253",
		},
		"another Talos authority": {
			func(r *waitRequest) { r.Talosconfig = clustertest.NewAuthority(t).Talosconfig(t) }, "signed by unknown authority",
		},
		"another Kubernetes authority": {func(r *waitRequest) {
			r.Kubeconfig = clustertest.NewAuthority(t).Kubeconfig(t, "https://"+net.JoinHostPort(clustertest.VIP, port))
		}, "signed by unknown authority"},
		"a name that is not in a certificate": {func(r *waitRequest) {
			r.Kubeconfig = kubernetes.Kubeconfig(t, "https://"+net.JoinHostPort("127.250.250.251", port))
		}, "127.250.250.251"},
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

func TestWaitReportsABadRequest(t *testing.T) {
	t.Parallel()

	talos, kubernetes := clustertest.NewAuthority(t), clustertest.NewAuthority(t)
	good := waitRequest{Wait: request.Wait{
		Common:      request.Common{ControlPlanes: []request.Node{{Name: "cp-1", Address: "127.0.9.1"}}},
		Talosconfig: talos.Talosconfig(t),
		Kubeconfig:  kubernetes.Kubeconfig(t, "https://"+clustertest.VIP+":6443"),
	}}
	secret := "c2VjcmV0LXRoYXQtbXVzdC1ub3QtYXBwZWFy"

	for name, test := range map[string]struct {
		change func(*waitRequest)
		args   []string
		want   []string
	}{
		"everything at once": {
			change: func(r *waitRequest) {
				*r = waitRequest{Wait: request.Wait{
					Common:      request.Common{Timeout: "soon", Interval: "2"},
					Talosconfig: "contexts: " + secret,
					Kubeconfig:  "clusters: " + secret,
					Workers: []request.Node{
						{Name: "w-1", Address: "127.0.9.4/24"}, {Address: "127.0.9.5"}, {Name: "w-1", Address: "127.0.9.5"},
					},
					Versions: []request.Versions{{Node: "w-2"}},
				}}
			},
			want: []string{
				"the request has 10 problems", `versions[0].node: "w-2" is none of`, `timeout: "soon"`, `interval: "2"`,
				"talosconfig: it is not", "kubeconfig: it is not", "controlPlanes: is missing",
				`workers[0].address: "127.0.9.4/24"`, "workers[1].name: is missing", `workers[2].name: "w-1" is already at workers[0]`,
				`workers[2].address: "127.0.9.5" is already at workers[1]`,
			},
		},
		"a talosconfig without the context it names": {
			change: func(r *waitRequest) { r.Talosconfig = "context: a\ncontexts: {}\n" },
			want:   []string{"talosconfig: it is not"},
		},
		"a talosconfig without a certificate": {
			change: func(r *waitRequest) {
				r.Talosconfig = "context: a\ncontexts:\n  a:\n    ca: " + secret + "\n    crt: " + secret + "\n    key: " + secret +
					"\n"
			},
			want: []string{"talosconfig: it is not"},
		},
		"a kubeconfig with a broken key": {
			change: func(r *waitRequest) {
				r.Kubeconfig = strings.Replace(r.Kubeconfig, "client-key-data: ", "client-key-data: "+secret, 1)
			},
			want: []string{"kubeconfig: it is not"},
		},
		"a kubeconfig without its user": {
			change: func(r *waitRequest) {
				r.Kubeconfig = strings.Replace(r.Kubeconfig, "user: admin@test", "user: nobody", 1)
			},
			want: []string{"kubeconfig: it is not"},
		},
		"no time": {
			change: func(*waitRequest) {},
			args:   []string{"--timeout", "0s", "--interval", "-1s"},
			want:   []string{`timeout: "0s" is not a duration above zero`, `interval: "-1s" is not a duration above zero`},
		},
		"an argument": {change: func(*waitRequest) {}, args: []string{"now"}, want: []string{`unknown command "now"`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			req := good
			test.change(&req)
			stdout, stderr, err := run(t, "wait", &req, verbtest.Never, test.args...)
			verbtest.RequireError(t, err, test.want...)

			assert.Empty(t, stdout)
			assert.NotContains(t, stderr+err.Error(), secret)
			verbtest.AssertNoSecrets(t, req.Talosconfig+"\n"+req.Kubeconfig, stderr+err.Error())
		})
	}
}

func TestReadRequest(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct{ in, want string }{
		"nothing":          {"", "there is no request on standard input"},
		"no JSON":          {"talosconfig:", "not what it should be"},
		"an unknown field": {`{"nodes": []}`, `unknown field "nodes"`},
		"two requests":     {`{} {}`, "more than one request"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			err := refusedRequest(test.in, &waitRequest{})
			require.ErrorContains(t, err, test.want)
		})
	}
}

func TestInterruptWhileNoRequestComes(t *testing.T) {
	t.Parallel()

	in, out := io.Pipe()
	defer out.Close()

	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	root := verbtest.Root(Commands())
	root.SetArgs([]string{"wait"})
	root.SetIn(in)
	require.ErrorContains(t, root.ExecuteContext(ctx),
		"interrupted before a request came on standard input: see talosops wait --help")
}

func TestVersionsLeavesOutWhoDoesNotAnswer(t *testing.T) {
	t.Parallel()

	talos, kubernetes := clustertest.NewAuthority(t), clustertest.NewAuthority(t)
	address, port := clustertest.StartNode(t, talos, kubernetes, http.NewServeMux())
	stdout, stderr, err := run(t, "versions", &waitRequest{Wait: request.Wait{
		Common:      request.Common{ControlPlanes: []request.Node{{Name: "cp-1", Address: address}}},
		Talosconfig: talos.Talosconfig(t),
		Kubeconfig:  kubernetes.Kubeconfig(t, "https://"+net.JoinHostPort(clustertest.VIP, port)),
		Workers:     []request.Node{{Name: "w-1", Address: "127.0.0.253"}},
	}}, verbtest.Never)
	require.NoError(t, err)
	assert.Contains(t, stdout, `"nodes":{"cp-1":{"talos":"v1.12.6","schematic":"376567"}}}`)
	assert.Contains(t, stderr, "cp-1: versions: does not tell its version of the Kubernetes API: 404 Not Found: 404 page not found\n")
	assert.Contains(t, stderr, "w-1: versions: does not tell its version of Talos: ")
}
