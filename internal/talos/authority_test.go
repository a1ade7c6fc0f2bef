package talos_test

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/talos"
)

// The order of a rotation on machines is in talosops (TestARotationMayBeInterruptedAfterEachChange).
func TestRotationRejectsUnknownAuthorities(t *testing.T) {
	t.Parallel()

	const other = " is neither the one in the stack's state nor its replacement: " +
		"another tool has changed it"

	for kind, foreign := range map[talos.AuthorityKind][2]string{
		talos.TalosAuthority:      {"version: v1alpha1\nmachine:\n  type: worker\n  ca:\n    crt: c2VjcmV0\n", "its certificate authority of the Talos API"},
		talos.KubernetesAuthority: {"version: v1alpha1\nmachine: {}\ncluster:\n  ca:\n    crt: c2VjcmV0\n", "its certificate authority of the Kubernetes API"},
	} {
		next, err := kind.New(time.Now())
		require.NoError(t, err)

		r := talos.Rotation{Kind: kind, Old: []byte("old"), New: next}

		for text, problem := range map[string]string{
			"": "it is not a machine configuration", "a secret": "it is not a machine configuration",
			"version: v1alpha1\nmachine:\n  type: worker\n": "it is not a machine configuration",
			foreign[0]: foreign[1] + other,
		} {
			_, err := r.CompletedSteps(text)
			require.EqualError(t, err, problem)

			for _, step := range []func(string) ([]byte, error){r.Add, r.Switch, r.Remove} {
				changed, err := step(text)
				require.EqualError(t, err, problem)
				assert.Nil(t, changed)
			}
		}
	}
}

func TestReplacingSplitsCertificates(t *testing.T) {
	t.Parallel()

	next, err := talos.KubernetesAuthority.New(time.Now())
	require.NoError(t, err)

	old, err := talos.KubernetesAuthority.New(time.Now())
	require.NoError(t, err)

	certificate, replaced := talos.SplitAuthorities(slices.Concat(next.Certificate, old.Certificate))
	assert.Equal(t, next.Certificate, certificate)
	assert.Equal(t, old.Certificate, replaced)

	certificate, replaced = talos.SplitAuthorities(next.Certificate)
	assert.Equal(t, next.Certificate, certificate)
	assert.Nil(t, replaced)
}

func TestKubeconfigWithServer(t *testing.T) {
	t.Parallel()

	const text = "clusters: [{name: one, cluster: {server: 'https://10.0.0.5:6443', certificate-authority-data: Y2E=}}]\n" +
		"users: [{name: a, user: {client-certificate-data: Y3J0}}]\n"

	assert.EqualValues(t, text, talos.Kubeconfig(text).WithServer("https://10.0.0.5:6443"), "it is not written again")
	assert.EqualValues(t, "no kubeconfig", talos.Kubeconfig("no kubeconfig").WithServer("https://10.0.0.5:6443"))

	changed := talos.Kubeconfig(text).WithServer("https://k8s.example.org:443")
	assert.Contains(t, changed, "server: https://k8s.example.org:443\n")
	assert.NotContains(t, changed, "10.0.0.5")
	assert.Contains(t, changed, "client-certificate-data: Y3J0\n")
}

func TestKubeconfigIsReissued(t *testing.T) {
	t.Parallel()

	ca, err := talos.KubernetesAuthority.New(time.Now())
	require.NoError(t, err)

	before, err := ca.Administrator(time.Now())
	require.NoError(t, err)

	encode := base64.StdEncoding.EncodeToString
	old := talos.Kubeconfig("apiVersion: v1\nclusters: [{name: one, cluster: {server: 'https://127.0.9.1:6443', " +
		"certificate-authority-data: " + encode([]byte("old")) + "}}]\nusers: [{name: admin@one, user: {" +
		"client-certificate-data: " + encode(before.Certificate) + ", client-key-data: " + encode(before.Key) + "}}]\n")

	next, err := old.Reissue(ca, time.Now())
	require.NoError(t, err)
	assert.Contains(t, string(next), "apiVersion: v1\n", "what is not known stays")

	trusted, err := next.Authorities()
	require.NoError(t, err)
	assert.Equal(t, ca.Certificate, trusted)

	parts, err := next.ProviderOutput()
	require.NoError(t, err)
	assert.Equal(t, "https://127.0.9.1:6443", parts["host"])

	text, err := base64.StdEncoding.DecodeString(parts["clientCertificate"].(string))
	require.NoError(t, err)

	block, _ := pem.Decode(text)
	require.NotNil(t, block)

	made, err := x509.ParseCertificate(block.Bytes)
	require.NoError(t, err)
	assert.Equal(t, []string{"os:admin"}, made.Subject.Organization, "of the user before")
	assert.InDelta(t, 365*24, time.Until(made.NotAfter).Hours(), 25)

	for _, text := range []talos.Kubeconfig{"", "a secret", "users: []"} {
		_, err := text.Reissue(ca, time.Now())
		require.EqualError(t, err, "it is not a kubeconfig as Talos generates it, with the certificate of one administrator")
	}
}

func TestTalosconfigTrustsItsAuthority(t *testing.T) {
	t.Parallel()

	ca, err := talos.TalosAuthority.New(time.Now())
	require.NoError(t, err)

	client, err := ca.Administrator(time.Now())
	require.NoError(t, err)

	text, err := client.Talosconfig("one", []string{"127.0.9.1"})
	require.NoError(t, err)

	trusted, err := talos.TalosconfigAuthority(text)
	require.NoError(t, err)
	assert.Equal(t, ca.Certificate, trusted)

	both, err := talos.TalosconfigWithAuthorities(text, []byte("old"), ca.Certificate)
	require.NoError(t, err)

	trusted, err = talos.TalosconfigAuthority(both)
	require.NoError(t, err)
	assert.Equal(t, "old\n"+string(ca.Certificate), string(trusted))

	for _, text := range []string{"", "a: secret", "context: one\ncontexts: {}"} {
		_, err = talos.TalosconfigWithAuthorities(text)
		require.EqualError(t, err, "it is not a Talos client configuration")
	}

	_, err = talos.Authority{Certificate: []byte("a secret"), Key: []byte("another")}.Administrator(time.Now())
	require.ErrorContains(t, err, "the machine secrets are not what Talos' provider writes")
}
