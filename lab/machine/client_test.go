package machine_test

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	machinetype "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"
)

// TestKubectl lets kubectl look at a cluster and maintain its nodes.
func TestKubectl(t *testing.T) {
	t.Parallel()

	kubectl, err := exec.LookPath("kubectl")
	if err != nil { // it is not one of the project's tools; TestKubernetesAPI asks the same with its own client
		t.Skip("there is no kubectl on PATH")
	}

	l := newLab(t)
	l.cluster(3, 1)

	kubeconfig, err := l.client(11).Kubeconfig(l.context())
	require.NoError(t, err)

	common := []string{"--kubeconfig", l.write("kubeconfig", kubeconfig)}

	l.check(kubectl, common, []expectation{
		{command: "get nodes -o wide", contain: []string{"node-13   Ready    control-plane", "node-21   Ready    <none>", "v1.35.2   #21", "Talos (v1.12.6)"}},
		{command: "get nodes -l node-role.kubernetes.io/control-plane -o name", contain: []string{"node/node-11\nnode/node-12\nnode/node-13\n"}},
		{command: "get pods -A -o wide", contain: []string{"kube-apiserver-node-11", "kube-proxy-"}},
		{command: "get ds,deploy,svc -A", contain: []string{"coredns   2/2", "kube-proxy     4         4", "10.96.0.1"}},
		{command: "version", contain: []string{"Server Version: v1.35.2"}},
		{command: "get node node-11 -o yaml", contain: []string{"podCIDR: 10.244.", "key: node-role.kubernetes.io/control-plane"}},
		{command: "cordon node-21", contain: []string{"node/node-21 cordoned"}},
		{command: "drain node-21 --ignore-daemonsets", contain: []string{"node/node-21 drained"}},
		{command: "get nodes", contain: []string{"Ready,SchedulingDisabled"}},
		{command: "uncordon node-21", contain: []string{"node/node-21 uncordoned"}},
		{command: "get --raw /readyz?verbose", contain: []string{"[+]etcd ok", "readyz check passed"}},
		{command: "describe node node-21", contain: []string{"kubelet is posting ready status"}},
		{command: "delete node node-21", contain: []string{"node \"node-21\" deleted"}},
	})

	assert.NotContains(t, l.run(kubectl, append(common, "get", "nodes")...), "node-21")
}

// TestNetworksOfPodsAndServices: the pod network has 256 addresses for each node and none for one more, and DNS has the tenth address of the services'.
func TestNetworksOfPodsAndServices(t *testing.T) {
	t.Parallel()

	l := newLab(t)
	l.patches = append(l.patches, "cluster:\n  network:\n    podSubnets: [10.42.6.0/23]\n    serviceSubnets: [10.43.0.0/24]\n")
	l.cluster(1, 1)

	kubeconfig, err := l.client(11).Kubeconfig(l.context())
	require.NoError(t, err)

	k := l.kube(kubeconfig)
	given := func() map[string]string {
		ready := map[string]string{}
		_, nodes := k.do(http.MethodGet, "/api/v1/nodes", "application/json", "")

		for _, item := range nodes["items"].([]any) {
			node := item.(map[string]any)
			cidr, _ := node["spec"].(map[string]any)["podCIDR"].(string)
			conditions := node["status"].(map[string]any)["conditions"].([]any)
			ready[cidr], _ = conditions[len(conditions)-1].(map[string]any)["status"].(string)
		}

		return ready
	}
	assert.Equal(t, map[string]string{"10.42.6.0/24": "True", "10.42.7.0/24": "True"}, given())

	l.boot(22)
	l.apply(22, l.configuration(machinetype.TypeWorker))
	l.until("a third node is registered", func() bool { return len(given()) == 3 })
	assert.Equal(t, map[string]string{"10.42.6.0/24": "True", "10.42.7.0/24": "True", "": "False"}, given())

	_, dns := k.do(http.MethodGet, "/api/v1/namespaces/kube-system/services/kube-dns", "application/json", "")
	assert.Equal(t, "10.43.0.10", dns["spec"].(map[string]any)["clusterIP"])
}

// TestTooManyServices: the API server ends with its own words.
func TestTooManyServices(t *testing.T) {
	t.Parallel()

	l := newLab(t)
	l.boot(11)
	l.apply(11, l.configuration(machinetype.TypeControlPlane, "cluster:\n  network:\n    serviceSubnets: [10.0.0.0/8]\n"))
	require.NoError(t, l.answers(11).Bootstrap(l.context(), &machineapi.BootstrapRequest{}))
	l.until("the console says so", func() bool {
		return strings.Contains(strings.Join(l.machines.Console(11), "\n"), "specified --service-cluster-ip-range is too large; for 32-bit addresses, the mask must be >= 12")
	})
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

	if method == http.MethodPatch {
		request.Header.Set("Content-Type", "application/merge-patch+json")
	}

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

// TestANodeObjectOutlivesItsMachine removes a worker: nobody takes its Node out of Kubernetes, on the lab as on a real cluster.
func TestANodeObjectOutlivesItsMachine(t *testing.T) {
	t.Parallel()

	l := newLab(t)
	l.cluster(1, 1)

	kubeconfig, err := l.client(11).Kubeconfig(l.context())
	require.NoError(t, err)

	_, before := l.kube(kubeconfig).do(http.MethodGet, "/api/v1/nodes/node-21", "application/json", "")

	l.machines.PowerOff(21)
	l.mu.Lock()
	delete(l.volumes, "local:vm-21-disk-0")
	l.mu.Unlock()

	code, after := l.kube(kubeconfig).do(http.MethodGet, "/api/v1/nodes/node-21", "application/json", "")
	require.Equal(t, http.StatusOK, code)
	assert.Equal(t, before["metadata"].(map[string]any)["uid"], after["metadata"].(map[string]any)["uid"])
	assert.Contains(t, fmt.Sprint(after), "Kubelet stopped posting node status.")
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
