package talos_test

import (
	"encoding/base64"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"

	"talos-proxmox/internal/talos"
)

// providerOutput returns a bundle as the output machineSecrets of the Talos provider.
func providerOutput(t *testing.T, b *secrets.Bundle) map[string]any {
	t.Helper()

	text, err := yaml.Marshal(b)
	require.NoError(t, err)

	machine, client, err := talos.ProviderSecrets(text, time.Now())
	require.NoError(t, err)

	for _, field := range []string{"caCertificate", "clientCertificate", "clientKey"} {
		pem, err := base64.StdEncoding.DecodeString(client[field].(string))
		require.NoError(t, err)
		assert.Contains(t, string(pem), "-----BEGIN ", field)
	}

	return machine
}

func TestSecretsBundleIsWhatTalosctlReads(t *testing.T) {
	t.Parallel()

	made, err := secrets.NewBundle(secrets.NewFixedClock(time.Now()), config.TalosVersion1_12)
	require.NoError(t, err)

	text, err := talos.SecretsBundle(providerOutput(t, made))
	require.NoError(t, err)

	var read secrets.Bundle
	require.NoError(t, yaml.Unmarshal(text, &read))
	read.Clock = made.Clock
	assert.Equal(t, made, &read)
}

func TestSecretsBundleErrorsQuoteNothing(t *testing.T) {
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

			values := providerOutput(t, made)
			change(values)
			_, err := talos.SecretsBundle(values)
			require.ErrorContains(t, err, "the machine secrets are not what Talos' provider writes")
			assert.NotContains(t, err.Error(), "a secret")
		})
	}
}

func TestContractOfSecrets(t *testing.T) {
	t.Parallel()

	newer, err := secrets.NewBundle(secrets.NewFixedClock(time.Now()), config.TalosVersion1_12)
	require.NoError(t, err)

	older := *newer
	older.Secrets = &secrets.Secrets{BootstrapToken: newer.Secrets.BootstrapToken, AESCBCEncryptionSecret: "c2VjcmV0"}

	for version, want := range map[string]string{"v1.12.6": "v1.12", "v1.13.9": "v1.13", "v1.14.4": "v1.14"} {
		release, err := talos.ReleaseOf(version)
		require.NoError(t, err)
		assert.Equal(t, want, talos.ContractOfSecrets(providerOutput(t, newer), release))
		assert.Equal(t, min(want, "v1.13"), talos.ContractOfSecrets(providerOutput(t, &older), release), "AES-CBC")
	}
}

func TestProviderSecretsErrorsQuoteNothing(t *testing.T) {
	t.Parallel()

	for name, text := range map[string]string{"nothing": "", "a text": "a secret", "half of it": "cluster: {id: a secret}"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			_, _, err := talos.ProviderSecrets([]byte(text), time.Now())
			require.ErrorContains(t, err, "they are not machine secrets as `talos-proxmox secrets export`")
			assert.NotContains(t, err.Error(), "a secret")
		})
	}
}
