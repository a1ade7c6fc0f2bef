package machine_test

import (
	stdx509 "crypto/x509"
	"encoding/base64"
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/siderolabs/crypto/x509"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	machinetype "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"
)

// admin is a Kubernetes client of the cluster's administrator.
func (l *lab) admin() kubeClient {
	l.Helper()

	kubeconfig, err := l.client(11).Kubeconfig(l.context())
	require.NoError(l.T, err)

	return l.kube(kubeconfig)
}

// kubelet is a Kubernetes client with a certificate of the cluster's authority.
func (l *lab) kubelet(name string, groups ...string) kubeClient {
	l.Helper()

	encode := base64.StdEncoding.EncodeToString
	crt, key := l.kubernetesPair(name, groups...)
	kubeconfig, err := yaml.Marshal(map[string]any{
		"clusters": []any{
			map[string]any{
				"cluster": map[string]any{
					"server": "https://" + l.address(11) + ":6443", "certificate-authority-data": encode(l.secrets.Certs.K8s.Crt),
				},
			},
		},
		"users": []any{
			map[string]any{"user": map[string]any{"client-certificate-data": encode(crt), "client-key-data": encode(key)}},
		},
	})
	require.NoError(l.T, err)

	return l.kube(kubeconfig)
}

// kubernetesPair is a client certificate of the cluster's authority, and its key.
func (l *lab) kubernetesPair(name string, groups ...string) (crt, key []byte) {
	l.Helper()

	ca, err := x509.NewCertificateAuthorityFromCertificateAndKey(l.secrets.Certs.K8s)
	require.NoError(l.T, err)

	pair, err := x509.NewKeyPair(ca, x509.CommonName(name), x509.Organization(groups...),
		x509.NotBefore(time.Now().Add(-time.Minute)), x509.NotAfter(time.Now().Add(time.Hour)),
		x509.KeyUsage(stdx509.KeyUsageDigitalSignature),
		x509.ExtKeyUsage([]stdx509.ExtKeyUsage{stdx509.ExtKeyUsageClientAuth}))
	require.NoError(l.T, err)

	encoded := x509.NewCertificateAndKeyFromKeyPair(pair)

	return encoded.Crt, encoded.Key
}

// node is what the API shows of a node: labels and taints, these as text.
func (k kubeClient) node(name string) (labels, annotations map[string]any, taints string) {
	k.l.Helper()

	code, o := k.do(http.MethodGet, "/api/v1/nodes/"+name, "application/json", "")
	require.Equal(k.l.T, http.StatusOK, code, o)

	metadata := o["metadata"].(map[string]any)
	labels, _ = metadata["labels"].(map[string]any)
	annotations, _ = metadata["annotations"].(map[string]any)

	text, err := json.Marshal(o["spec"].(map[string]any)["taints"])
	require.NoError(k.l.T, err)

	return labels, annotations, string(text)
}

func (k kubeClient) patch(node, body string) (int, string) {
	k.l.Helper()

	code, o := k.do(http.MethodPatch, "/api/v1/nodes/"+node, "application/json", body)
	message, _ := o["message"].(string)

	return code, message
}

// reapply gives a running machine another configuration.
func (l *lab) reapply(n int, role machinetype.Type, patches ...string) {
	l.Helper()

	_, err := l.client(n).ApplyConfiguration(l.context(), &machineapi.ApplyConfigurationRequest{
		Data: l.configuration(role, patches...), Mode: machineapi.ApplyConfigurationRequest_NO_REBOOT,
	})
	require.NoError(l.T, err)
}

const (
	labelled   = "machine:\n  nodeLabels: {example.org/a: b}\n"
	tainted    = "machine:\n  nodeTaints: {dedicated: \"db:NoSchedule\"}\n"
	registered = "machine:\n  kubelet:\n    extraConfig:\n      registerWithTaints: [{key: dedicated, value: db, effect: NoSchedule}]\n"
)

// TestTaintsOfWorkersCostTheirLabels: Talos changes its node with the kubelet's identity there, in one update.
func TestTaintsOfWorkersCostTheirLabels(t *testing.T) {
	t.Parallel()

	l := newLab(t)
	l.patches = []string{noCNI}
	l.bootstrapped()
	l.boot(21)
	l.apply(21, l.configuration(machinetype.TypeWorker, labelled, tainted))

	l.until("Talos is refused", func() bool {
		return strings.Contains(
			strings.Join(l.machines.Console(21), "\n"),
			`nodes "node-21" is forbidden: node "node-21" is not allowed to modify taints`,
		)
	})

	labels, annotations, taints := l.admin().node("node-21")
	assert.NotContains(t, labels, "example.org/a")
	assert.NotContains(t, annotations, "talos.dev/owned-labels")
	assert.NotContains(t, taints, "dedicated")

	// Without the taint the labels come, and what the kubelet would register with comes too late.
	l.reapply(21, machinetype.TypeWorker, labelled, registered)

	labels, annotations, taints = l.admin().node("node-21")
	assert.Equal(t, "b", labels["example.org/a"])
	assert.Contains(t, annotations["talos.dev/owned-labels"], "example.org/a")
	assert.NotContains(t, taints, "dedicated")

	// Talos removes what it owns, and leaves what is someone else's.
	code, _ := l.admin().patch("node-21", `{"metadata":{"labels":{"mine":"1"}}}`)
	require.Equal(t, http.StatusOK, code)
	l.reapply(21, machinetype.TypeWorker, "machine:\n  nodeLabels: {mine: \"2\"}\n")

	labels, _, _ = l.admin().node("node-21")
	assert.NotContains(t, labels, "example.org/a")
	assert.Equal(t, "1", labels["mine"])

	// A label that no kubelet may set costs the others, too.
	l.reapply(21, machinetype.TypeWorker, labelled, "machine:\n  nodeLabels: {node-role.kubernetes.io/worker: \"\"}\n")

	labels, _, _ = l.admin().node("node-21")
	assert.NotContains(t, labels, "example.org/a")
	assert.NotContains(t, labels, "node-role.kubernetes.io/worker")
}

func TestKubeletsRegisterTheirTaints(t *testing.T) {
	t.Parallel()

	l := newLab(t)
	l.patches = []string{noCNI}
	l.boot(11)
	l.apply(
		11,
		l.configuration(
			machinetype.TypeControlPlane, labelled, tainted, "machine:\n  nodeLabels: {node-role.kubernetes.io/etcd: \"\"}\n",
		),
	)
	require.NoError(t, l.answers(11).Bootstrap(l.context(), &machineapi.BootstrapRequest{}))
	l.stage(11, "running")
	l.boot(21)
	l.apply(21, l.configuration(machinetype.TypeWorker, labelled, registered))

	k := l.admin()
	l.until("the API server takes connections", func() bool {
		conn, err := net.Dial("tcp", strings.TrimPrefix(k.server, "https://"))
		if err != nil {
			return false
		}

		return conn.Close() == nil
	})
	l.until("the worker is registered", func() bool {
		code, _ := k.do(http.MethodGet, "/api/v1/nodes/node-21", "application/json", "")

		return code == http.StatusOK
	})

	labels, _, taints := k.node("node-21")
	assert.Equal(t, "b", labels["example.org/a"])
	assert.Contains(t, taints, `{"effect":"NoSchedule","key":"dedicated","value":"db"}`)

	// On control planes Talos has the administrator's rights: it adds taints, owns the one that the kubelet registered
	// with, and removes both.
	labels, annotations, taints := k.node("node-11")
	assert.Contains(t, labels, "node-role.kubernetes.io/etcd")
	assert.Contains(t, taints, `"key":"dedicated"`)
	assert.Contains(t, taints, `"key":"node-role.kubernetes.io/control-plane"`)
	assert.Equal(t, `["dedicated","node-role.kubernetes.io/control-plane"]`, annotations["talos.dev/owned-taints"])

	l.reapply(11, machinetype.TypeControlPlane, "cluster:\n  allowSchedulingOnControlPlanes: true\n")

	_, annotations, taints = k.node("node-11")
	assert.NotContains(t, taints, "dedicated")
	assert.NotContains(t, taints, "control-plane")
	assert.NotContains(t, annotations, "talos.dev/owned-taints")
}

func TestAKubeletWithAConfigurationItCannotReadRegistersNoNode(t *testing.T) {
	t.Parallel()

	l := newLab(t)
	l.patches = []string{noCNI}
	l.bootstrapped()
	l.boot(21)
	l.apply(
		21,
		l.configuration(
			machinetype.TypeWorker,
			"machine:\n  kubelet:\n    extraConfig:\n      registerWithTaints: [{name: dedicated, effect: NoSchedule}]\n",
		),
	)
	l.until("the kubelet is refused", func() bool {
		return strings.Contains(strings.Join(l.machines.Console(21), "\n"), `unknown field "registerWithTaints[0].name"`)
	})

	l.reapply(21, machinetype.TypeWorker, registered)
	l.until("the kubelet registers its node", func() bool {
		code, _ := l.admin().do(http.MethodGet, "/api/v1/nodes/node-21", "application/json", "")

		return code == http.StatusOK
	})
}
