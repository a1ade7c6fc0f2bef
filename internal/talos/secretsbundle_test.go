package talos_test

import (
	"encoding/base64"
	"testing"
	"time"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"

	"talos-proxmox/internal/talos"
)

// providerSecrets is what Talos' provider has of a bundle in its output machineSecrets.
func providerSecrets(b *secrets.Bundle) map[string]any {
	encode := base64.StdEncoding.EncodeToString
	pair := func(c *x509.PEMEncodedCertificateAndKey) map[string]any {
		return map[string]any{"cert": encode(c.Crt), "key": encode(c.Key)}
	}

	return map[string]any{
		"certs": map[string]any{
			"etcd":              pair(b.Certs.Etcd),
			"k8s":               pair(b.Certs.K8s),
			"k8sAggregator":     pair(b.Certs.K8sAggregator),
			"os":                pair(b.Certs.OS),
			"k8sServiceaccount": map[string]any{"key": encode(b.Certs.K8sServiceAccount.Key)},
		},
		"cluster": map[string]any{"id": b.Cluster.ID, "secret": b.Cluster.Secret},
		"secrets": map[string]any{
			"bootstrapToken": b.Secrets.BootstrapToken, "secretboxEncryptionSecret": b.Secrets.SecretboxEncryptionSecret,
		},
		"trustdinfo": map[string]any{"token": b.TrustdInfo.Token},
	}
}

func TestSecretsBundleIsWhatTalosctlReads(t *testing.T) {
	t.Parallel()

	made, err := secrets.NewBundle(secrets.NewFixedClock(time.Now()), config.TalosVersion1_12)
	require.NoError(t, err)

	text, err := talos.SecretsBundle(providerSecrets(made))
	require.NoError(t, err)

	var read secrets.Bundle
	require.NoError(t, yaml.Unmarshal(text, &read))
	read.Clock = made.Clock
	assert.Equal(t, made, &read)
}

func TestSecretsBundleTellsNothingOfWhatItCannotUse(t *testing.T) {
	t.Parallel()

	made, err := secrets.NewBundle(secrets.NewFixedClock(time.Now()), config.TalosVersion1_12)
	require.NoError(t, err)

	for name, change := range map[string]func(map[string]any){
		"nothing":          func(m map[string]any) { clear(m) },
		"no certificates":  func(m map[string]any) { delete(m, "certs") },
		"a text":           func(m map[string]any) { m["certs"] = "a secret" },
		"encrypted values": func(m map[string]any) { m["cluster"] = map[string]any{"id": nil, "secret": nil} },
		"no base64": func(m map[string]any) {
			m["certs"].(map[string]any)["os"] = map[string]any{"cert": "a secret!", "key": "x"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			values := providerSecrets(made)
			change(values)
			_, err := talos.SecretsBundle(values)
			require.ErrorContains(t, err, "the machine secrets are not what Talos' provider writes")
			assert.NotContains(t, err.Error(), "a secret")
		})
	}
}
