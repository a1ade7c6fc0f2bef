package machine_test

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/role"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"
)

// expectation is a command and what must be in its output; "#" stands for the network's prefix.
type expectation struct {
	command string
	contain []string
}

func (l *lab) check(program string, common []string, list []expectation) {
	l.Helper()

	for _, e := range list {
		out := l.run(program, append(append([]string{}, common...), strings.Fields(strings.ReplaceAll(e.command, "#", l.prefix))...)...)

		for _, text := range e.contain {
			assert.Containsf(l.T, out, strings.ReplaceAll(text, "#", l.prefix), "%s", e.command)
		}
	}
}

// TestTalosctlAndKubectl lets clients that nobody here wrote look at a cluster of three control planes and a worker.
func TestTalosctlAndKubectl(t *testing.T) {
	t.Parallel()

	l := newLab(t)

	talosctl, ok := l.talosctl()
	if !ok {
		return
	}

	l.cluster(3, 1)

	content, err := l.talosconfig(role.MakeSet(role.Admin), l.address(11)).Bytes()
	require.NoError(t, err)

	config := l.write("talosconfig", content)
	all := "-n #11,#12,#13,#21 "

	l.check(talosctl, []string{"--talosconfig", config, "-e", l.address(11)}, []expectation{
		{all + "version", []string{"NODE:        #21", "Tag:         v1.12.6", "Enabled:     RBAC"}},
		{all + "services", []string{"#12   etcd                   Running   OK", "#21   ext-qemu-guest-agent   Running   ?"}},
		{all + "get machinestatus", []string{"#13   runtime     MachineStatus   machine", "running   true"}},
		{"-n #11 get members", []string{"node-21    worker         Talos (v1.12.6)   [\"#21\"]"}},
		{"-n #21 get addresses", []string{"ens18/#21/24"}},
		{"-n #21 get links", []string{"02:00:00:00:00:15   up           true"}},
		{"-n #21 get extensions", []string{"qemu-guest-agent", "schematic          " + schematicID}},
		{"-n #21 get disks", []string{"sda", "43 GB"}},
		{"-n #21 get rd", []string{"machinestatuses.runtime.talos.dev"}},
		{"-n #11 get mc -o yaml", []string{"type: controlplane"}},
		{"-n #11 etcd members", []string{"node-11    https://#11:2380", "node-13    https://#13:2380"}},
		{"-n #11,#12 etcd status", []string{"3.6.0", "false"}},
		{all + "memory", []string{"#21   8192"}},
		{all + "mounts", []string{"/dev/sda4", "/var"}},
		{all + "stats", []string{"apid"}},
		{all + "processes", []string{"/usr/bin/kubelet"}},
		{all + "containers -k", []string{"kube-system/kube-apiserver-node-12:kube-apiserver"}},
		{all + "time", []string{"#21"}},
		{"-n #11 read /proc/cmdline", []string{"talos.platform=nocloud"}},
		{all + "ls /etc", []string{"#21   hostname"}},
		{"-n #11 dmesg", []string{"Linux Talos v1.12.6"}},
		{"-n #11 logs etcd", []string{"etcd: bootstrapped cluster"}},
		{"-n #11 etcd snapshot " + config + ".db", []string{"total keys 4"}},
		{"-n #21 meta write 12 hello", nil},
		{"-n #21 get meta", []string{"0x0c", "hello"}},
		{"-n #11 health --wait-timeout 20s", []string{"waiting for all k8s nodes to report schedulable: OK"}},
		{
			"-n #11 health --server=false --wait-timeout 20s --control-plane-nodes #11,#12,#13 --worker-nodes #21",
			[]string{"waiting for all nodes disk sizes: OK", "waiting for coredns to report ready: OK"},
		},
		{"-n #11 kubeconfig " + config + ".kube", nil},
	})

	kubectl, err := exec.LookPath("kubectl")
	if err != nil { // it is not one of the project's tools; TestKubernetesAPI asks the same with its own client
		return
	}

	common := []string{"--kubeconfig", config + ".kube"}

	l.check(kubectl, common, []expectation{
		{"get nodes -o wide", []string{"node-13   Ready    control-plane", "node-21   Ready    <none>", "v1.35.2   #21", "Talos (v1.12.6)"}},
		{"get nodes -l node-role.kubernetes.io/control-plane -o name", []string{"node/node-11\nnode/node-12\nnode/node-13\n"}},
		{"get pods -A -o wide", []string{"kube-apiserver-node-11", "kube-proxy-"}},
		{"get ds,deploy,svc -A", []string{"coredns   2/2", "kube-proxy     4         4", "10.96.0.1"}},
		{"version", []string{"Server Version: v1.35.2"}},
		{"get node node-11 -o yaml", []string{"podCIDR: 10.244.", "key: node-role.kubernetes.io/control-plane"}},
		{"cordon node-21", []string{"node/node-21 cordoned"}},
		{"drain node-21 --ignore-daemonsets", []string{"node/node-21 drained"}},
		{"get nodes", []string{"Ready,SchedulingDisabled"}},
		{"uncordon node-21", []string{"node/node-21 uncordoned"}},
		{"get --raw /readyz?verbose", []string{"[+]etcd ok", "readyz check passed"}},
		{"describe node node-21", []string{"kubelet is posting ready status"}},
		{"delete node node-21", []string{"node \"node-21\" deleted"}},
	})

	assert.NotContains(t, l.run(kubectl, append(common, "get", "nodes")...), "node-21")
}

// kubeClient is an HTTP client made of a kubeconfig; it returns answers as JSON objects, or as text below "text".
type kubeClient struct {
	l      *lab
	server string
	http   *http.Client
}

func (l *lab) kube(kubeconfig []byte) kubeClient {
	l.Helper()

	var config struct {
		Clusters []struct {
			Cluster struct {
				Server string
				CA     string `yaml:"certificate-authority-data"`
			}
		}
		Users []struct {
			User struct {
				Certificate string `yaml:"client-certificate-data"`
				Key         string `yaml:"client-key-data"`
			}
		}
	}

	require.NoError(l.T, yaml.Unmarshal(kubeconfig, &config))

	decode := func(text string) []byte {
		b, err := base64.StdEncoding.DecodeString(text)
		require.NoError(l.T, err)

		return b
	}

	pool := x509.NewCertPool()
	require.True(l.T, pool.AppendCertsFromPEM(decode(config.Clusters[0].Cluster.CA)))

	pair, err := tls.X509KeyPair(decode(config.Users[0].User.Certificate), decode(config.Users[0].User.Key))
	require.NoError(l.T, err)

	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}}}
	l.Cleanup(transport.CloseIdleConnections)

	return kubeClient{l: l, server: config.Clusters[0].Cluster.Server, http: &http.Client{Transport: transport}}
}

func (k kubeClient) open(method, path, accept, body string) *http.Response {
	k.l.Helper()

	request, err := http.NewRequestWithContext(k.l.context(), method, k.server+path, strings.NewReader(body))
	require.NoError(k.l.T, err)
	request.Header.Set("Accept", accept)

	response, err := k.http.Do(request)
	require.NoError(k.l.T, err)

	return response
}

func (k kubeClient) do(method, path, accept, body string) (int, map[string]any) {
	k.l.Helper()

	response := k.open(method, path, accept, body)
	defer func() { _ = response.Body.Close() }()

	content, err := io.ReadAll(response.Body)
	require.NoError(k.l.T, err)

	var object map[string]any
	if json.Unmarshal(content, &object) != nil {
		object = map[string]any{"text": string(content)}
	}

	return response.StatusCode, object
}

func TestKubernetesAPI(t *testing.T) {
	t.Parallel()

	l := newLab(t)
	l.cluster(1, 1)

	kubeconfig, err := l.client(11).Kubeconfig(l.context())
	require.NoError(t, err)

	k := l.kube(kubeconfig)

	code, nodes := k.do(http.MethodGet, "/api/v1/nodes", "application/json;as=Table;v=v1;g=meta.k8s.io", "")
	assert.Equal(t, http.StatusOK, code)
	assert.Equal(t, "Table", nodes["kind"])
	require.Len(t, nodes["rows"], 2)
	assert.Equal(t, []any{"node-11", "Ready", "control-plane"}, nodes["rows"].([]any)[0].(map[string]any)["cells"].([]any)[:3])

	stream := k.open(http.MethodGet, "/api/v1/nodes?watch=true", "application/json", "")
	defer func() { _ = stream.Body.Close() }()

	events := bufio.NewScanner(stream.Body)

	for _, want := range []string{`"type":"ADDED"`, `"type":"ADDED"`} {
		require.True(t, events.Scan())
		assert.Contains(t, events.Text(), want)
	}

	code, patched := k.do(http.MethodPatch, "/api/v1/nodes/node-21", "application/json", `{"spec":{"unschedulable":true},"metadata":{"labels":{"a":"b"}}}`)
	assert.Equal(t, http.StatusOK, code)
	assert.Equal(t, true, patched["spec"].(map[string]any)["unschedulable"])

	require.True(t, events.Scan())
	assert.Contains(t, events.Text(), `"type":"MODIFIED"`)

	code, _ = k.do(http.MethodDelete, "/api/v1/nodes/node-21", "application/json", "")
	assert.Equal(t, http.StatusOK, code)

	require.True(t, events.Scan())
	assert.Contains(t, events.Text(), `"type":"DELETED"`)

	code, missing := k.do(http.MethodGet, "/api/v1/nodes/node-21", "application/json", "")
	assert.Equal(t, http.StatusNotFound, code)
	assert.Equal(t, `nodes "node-21" not found`, missing["message"])

	code, _ = k.do(http.MethodPost, "/api/v1/namespaces/default/pods", "application/json", "{}")
	assert.Equal(t, http.StatusMethodNotAllowed, code)

	_, healthy := k.do(http.MethodGet, "/readyz", "text/plain", "")
	assert.Equal(t, "ok", healthy["text"])

	k.http.Transport.(*http.Transport).CloseIdleConnections()
	k.http.Transport.(*http.Transport).TLSClientConfig.Certificates = nil

	code, refused := k.do(http.MethodGet, "/api/v1/nodes", "application/json", "")
	assert.Equal(t, http.StatusForbidden, code)
	assert.Contains(t, refused["message"], "system:anonymous")
}
