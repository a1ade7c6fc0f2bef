package machine_test

import (
	stdx509 "crypto/x509"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/siderolabs/crypto/x509"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	machinetype "github.com/siderolabs/talos/pkg/machinery/config/machine"
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

const registered = "machine:\n  kubelet:\n    extraConfig:\n      registerWithTaints: [{key: dedicated, value: db, effect: NoSchedule}]\n"

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
