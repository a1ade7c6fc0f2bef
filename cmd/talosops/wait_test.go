package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"testing"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/types/known/emptypb"
)

// testVIP is in certificates and the kubeconfig; nothing listens there, as before the VIP is up.
const testVIP = "127.250.250.250"

// talosNode is a Talos API with a healthy control plane.
type talosNode struct {
	machineapi.UnimplementedMachineServiceServer
	name string
}

func (n *talosNode) ServiceList(context.Context, *emptypb.Empty) (*machineapi.ServiceListResponse, error) {
	var services []*machineapi.ServiceInfo
	for _, id := range controlPlaneServices {
		services = append(services, &machineapi.ServiceInfo{Id: id, State: "Running", Health: &machineapi.ServiceHealth{Healthy: true}})
	}
	services = append(services, &machineapi.ServiceInfo{Id: "auditd", State: "Running", Health: &machineapi.ServiceHealth{Unknown: true}})

	return &machineapi.ServiceListResponse{Messages: []*machineapi.ServiceList{{Services: services}}}, nil
}

func (n *talosNode) EtcdMemberList(context.Context, *machineapi.EtcdMemberListRequest) (*machineapi.EtcdMemberListResponse, error) {
	return &machineapi.EtcdMemberListResponse{Messages: []*machineapi.EtcdMembers{{Members: []*machineapi.EtcdMember{{Hostname: n.name}}}}}, nil
}

func (n *talosNode) Version(context.Context, *emptypb.Empty) (*machineapi.VersionResponse, error) {
	return &machineapi.VersionResponse{Messages: []*machineapi.Version{{Version: &machineapi.VersionInfo{Tag: "v1.12.6"}}}}, nil
}

// startNode serves the Talos and the Kubernetes API of one control plane on a loopback address of its own, and returns the address and the port of
// the Kubernetes API.
func startNode(t *testing.T, talos, kubernetes *authority, handler http.Handler) (address, port string) {
	t.Helper()

	// The Talos port is fixed, so the address has to be free.
	var ln net.Listener
	for range 100 {
		address = fmt.Sprintf("127.%d.%d.%d", 100+rand.IntN(100), rand.IntN(256), 1+rand.IntN(254))
		var err error
		if ln, err = net.Listen("tcp", address+":50000"); err == nil {
			break
		}
	}
	require.NotNil(t, ln, "no loopback address is free on port 50000")
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(talos.serverTLS(t, address))))
	machineapi.RegisterMachineServiceServer(server, &talosNode{name: "cp-1"})
	go func() { _ = server.Serve(ln) }()
	t.Cleanup(server.Stop)

	// Only the shared address is in this certificate: verification must use the kubeconfig's name.
	api, err := tls.Listen("tcp", address+":0", kubernetes.serverTLS(t, testVIP))
	require.NoError(t, err)
	web := &http.Server{Handler: handler}
	go func() { _ = web.Serve(api) }()
	t.Cleanup(func() { _ = web.Close() })
	_, port, err = net.SplitHostPort(api.Addr().String())
	require.NoError(t, err)

	return address, port
}

func healthyAPI() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, "ok") })
	mux.HandleFunc("/api/v1/nodes", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, `{"kind":"NodeList","items":[{"metadata":{"name":"cp-1"},"status":{
			"conditions":[{"type":"MemoryPressure","status":"False"},{"type":"Ready","status":"True"}],"nodeInfo":{"kubeletVersion":"v1.35.0"}}}]}`)
	})

	return mux
}

// watcher keeps what is written and calls found once a text is in it.
type watcher struct {
	bytes.Buffer
	text  string
	found func()
}

func (w *watcher) Write(data []byte) (int, error) {
	n, err := w.Buffer.Write(data)
	if strings.Contains(w.String(), w.text) {
		w.found()
	}

	return n, err
}

// run executes the command with a request as the program sends it, and interrupts it once its progress contains until.
func run(t *testing.T, req request, until string, args ...string) (stdout, stderr string, err error) {
	t.Helper()

	in, err := json.Marshal(req)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	root := newRoot()
	var out bytes.Buffer
	progress := &watcher{text: until, found: cancel}
	root.SetArgs(append([]string{"wait"}, args...))
	root.SetIn(bytes.NewReader(in))
	root.SetOut(&out)
	root.SetErr(progress)
	err = root.ExecuteContext(ctx)

	return out.String(), progress.String(), err
}

// never is no part of any progress.
const never = "\x00"

func TestWaitOverRealConnections(t *testing.T) {
	t.Parallel()

	talos, kubernetes := newAuthority(t), newAuthority(t)
	address, port := startNode(t, talos, kubernetes, healthyAPI())
	req := request{
		Talosconfig:   talos.talosconfig(t),
		Kubeconfig:    kubernetes.kubeconfig(t, "https://"+net.JoinHostPort(testVIP, port)),
		ControlPlanes: []node{{"cp-1", address}}, KubernetesVersion: "v1.35.0", TalosVersion: "v1.12.6",
	}
	stdout, stderr, err := run(t, req, never, "--interval", "10ms")
	require.NoError(t, err, stderr)
	assert.Equal(t, `{"healthy":true,"etcdMembers":["cp-1"],"nodes":["cp-1"],"kubernetesVersion":"v1.35.0","talosVersion":"v1.12.6"}`+"\n", stdout)
	assert.Contains(t, stderr, "cp-1: node: registered and Ready\n")
}

func TestWaitNamesWhatRealConnectionsSay(t *testing.T) {
	t.Parallel()

	talos, kubernetes := newAuthority(t), newAuthority(t)
	mux := http.NewServeMux()
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = fmt.Fprint(w, "[+]ping ok\n[-]etcd failed: reason withheld\nreadyz check failed\n")
	})
	address, port := startNode(t, talos, kubernetes, mux)
	healthy := request{
		Talosconfig:   talos.talosconfig(t),
		Kubeconfig:    kubernetes.kubeconfig(t, "https://"+net.JoinHostPort(testVIP, port)),
		ControlPlanes: []node{{"cp-1", address}},
	}

	for name, test := range map[string]struct {
		change func(*request)
		want   string
	}{
		"the API server's own words": {func(*request) {}, "cp-1: Kubernetes API: is not ready on " + address + ": 500 Internal Server Error: etcd failed: reason withheld"},
		"nobody at the address":      {func(r *request) { r.Workers = []node{{"w-1", "127.0.0.253"}} }, "w-1: services: Talos does not answer on 127.0.0.253"},
		"another Talos authority":    {func(r *request) { r.Talosconfig = newAuthority(t).talosconfig(t) }, "signed by unknown authority"},
		"another Kubernetes authority": {func(r *request) {
			r.Kubeconfig = newAuthority(t).kubeconfig(t, "https://"+net.JoinHostPort(testVIP, port))
		}, "signed by unknown authority"},
		"a name that is not in a certificate": {func(r *request) {
			r.Kubeconfig = kubernetes.kubeconfig(t, "https://"+net.JoinHostPort("127.250.250.251", port))
		}, "127.250.250.251"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			req := healthy
			test.change(&req)
			stdout, stderr, err := run(t, req, test.want, "--interval", "10ms", "--timeout", "1m")
			require.ErrorContains(t, err, "interrupted")
			assert.Contains(t, stderr, test.want)
			assert.Empty(t, stdout)
			assertNoSecrets(t, req, stderr+err.Error())
		})
	}
}

// assertNoSecrets looks for every long word of the two configurations.
func assertNoSecrets(t *testing.T, req request, text string) {
	t.Helper()

	for word := range strings.FieldsSeq(req.Talosconfig + "\n" + req.Kubeconfig) {
		if len(word) > 60 {
			assert.NotContains(t, text, word)
		}
	}
}

func TestWaitReportsABadRequest(t *testing.T) {
	t.Parallel()

	talos, kubernetes := newAuthority(t), newAuthority(t)
	good := request{
		Talosconfig: talos.talosconfig(t), Kubeconfig: kubernetes.kubeconfig(t, "https://"+testVIP+":6443"), ControlPlanes: []node{{"cp-1", "127.0.9.1"}},
	}
	secret := "c2VjcmV0LXRoYXQtbXVzdC1ub3QtYXBwZWFy"
	for name, test := range map[string]struct {
		change func(*request)
		args   []string
		want   []string
	}{
		"everything at once": {
			func(r *request) {
				*r = request{
					Timeout: "soon", Interval: "2", Talosconfig: "contexts: " + secret, Kubeconfig: "clusters: " + secret,
					Workers: []node{{"w-1", "127.0.9.4/24"}, {"", "127.0.9.5"}, {"w-1", "127.0.9.5"}},
				}
			},
			nil,
			[]string{
				"the request has 9 problems", `timeout: "soon"`, `interval: "2"`, "talosconfig: it is not", "kubeconfig: it is not", "controlPlanes: none is stated",
				`workers[0].address: "127.0.9.4/24"`, "workers[1].name: none", `workers[2].name: "w-1" is already at workers[0]`, `workers[2].address: "127.0.9.5" is already at workers[1]`,
			},
		},
		"a talosconfig without the context it names": {func(r *request) { r.Talosconfig = "context: a\ncontexts: {}\n" }, nil, []string{"talosconfig: it is not"}},
		"a talosconfig without a certificate": {
			func(r *request) {
				r.Talosconfig = "context: a\ncontexts:\n  a:\n    ca: " + secret + "\n    crt: " + secret + "\n    key: " + secret + "\n"
			},
			nil, []string{"talosconfig: it is not"},
		},
		"a kubeconfig without TLS": {
			func(r *request) { r.Kubeconfig = kubernetes.kubeconfig(t, "http://"+testVIP+":6443") }, nil, []string{"kubeconfig: it is not"},
		},
		"a kubeconfig with a broken key": {
			func(r *request) {
				r.Kubeconfig = strings.Replace(r.Kubeconfig, "client-key-data: ", "client-key-data: "+secret, 1)
			}, nil, []string{"kubeconfig: it is not"},
		},
		"a kubeconfig without its user": {
			func(r *request) { r.Kubeconfig = strings.Replace(r.Kubeconfig, "user: admin@test", "user: nobody", 1) }, nil, []string{"kubeconfig: it is not"},
		},
		"a kubeconfig without base64": {
			func(r *request) {
				r.Kubeconfig = strings.Replace(r.Kubeconfig, "client-key-data: ", "client-key-data: '%'#", 1)
			}, nil, []string{"kubeconfig: it is not"},
		},
		"no time":     {func(*request) {}, []string{"--timeout", "0s", "--interval", "-1s"}, []string{"timeout: 0s is no time", "interval: -1s is no pause"}},
		"an argument": {func(*request) {}, []string{"now"}, []string{`unknown command "now"`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			req := good
			test.change(&req)
			stdout, stderr, err := run(t, req, never, test.args...)
			require.Error(t, err)
			for _, want := range test.want {
				require.ErrorContains(t, err, want)
			}
			assert.Empty(t, stdout)
			assert.NotContains(t, stderr+err.Error(), secret)
			assertNoSecrets(t, req, stderr+err.Error())
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

			_, err := readRequest(strings.NewReader(test.in))
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
	_, err := awaitRequest(ctx, in)
	require.ErrorContains(t, err, "interrupted before a request came")
}

func TestSummaryIsInOrder(t *testing.T) {
	t.Parallel()

	var out bytes.Buffer
	req := &request{ControlPlanes: []node{{"cp-2", ""}, {"cp-1", ""}}, Workers: []node{{"a-1", ""}}}
	require.NoError(t, printSummary(&out, req))
	assert.JSONEq(t, `{"healthy":true,"etcdMembers":["cp-1","cp-2"],"nodes":["a-1","cp-1","cp-2"]}`, out.String())
}
