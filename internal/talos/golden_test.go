package talos

import (
	"encoding/base64"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/config/validation"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/goldentest"
)

// mode is a machine's runtime mode: metal machines require install instructions, nocloud ones count as cloud and do
// not.
type mode string

func (m mode) String() string        { return string(m) }
func (m mode) RequiresInstall() bool { return m == "metal" }
func (m mode) InContainer() bool     { return false }

// testSecrets are the secrets of a cluster that exists nowhere.
var testSecrets = sync.OnceValues(func() (*secrets.Bundle, error) {
	bundle, err := secrets.NewBundle(secrets.NewClock(), config.TalosVersionCurrent)
	if err != nil {
		return nil, err
	}

	bundle.Cluster = &secrets.Cluster{ID: "fake-cluster-id", Secret: base64.StdEncoding.EncodeToString(make([]byte, 32))}
	bundle.Secrets = &secrets.Secrets{BootstrapToken: "fake.token", SecretboxEncryptionSecret: "fake-secretbox"}
	bundle.TrustdInfo = &secrets.TrustdInfo{Token: "fake.trustd"}

	return bundle, nil
})

// newestKubernetes returns the newest default version of a release with the contract; for an ended one the oldest
// supported default.
func newestKubernetes(contract string) string {
	version := supportedReleases()[0].DefaultKubernetes

	for _, release := range Releases() {
		if release.Contract == contract && release.Support == Supported {
			version = release.DefaultKubernetes
		}
	}

	return version
}

// generateConfig generates a node's configuration with the newest Kubernetes of a contract.
func generateConfig(t *testing.T, c ClusterConfig, n NodeConfig, contract string) config.Provider {
	t.Helper()

	bundle, err := testSecrets()
	require.NoError(t, err)

	g := testGeneration(contract)
	g.KubernetesVersion = newestKubernetes(contract)
	g.Endpoint = "https://" + n.Interfaces[0].Address.Addr().String() + ":6443"

	if c.VIP.IsValid() {
		g.Endpoint = "https://" + c.VIP.String() + ":6443"
	}

	text, err := configurationWith(g, c, n, bundle)
	require.NoError(t, err)
	final, err := configloader.NewFromBytes([]byte(text))
	require.NoError(t, err)

	return final
}

func requireValid(t *testing.T, cfg config.Provider) {
	t.Helper()

	for _, runtime := range []mode{"metal", "cloud"} {
		warnings, err := cfg.Validate(runtime, validation.WithLocal())
		require.NoError(t, err, "mode %s", runtime)
		// Contracts before 1.14 have no other place for a file.
		warnings = slices.DeleteFunc(warnings, func(warning string) bool {
			return strings.HasPrefix(warning, ".machine.files is deprecated")
		})
		assert.Empty(t, warnings, "mode %s", runtime)
	}
}

// pemBlock is a certificate in a document.
var pemBlock = regexp.MustCompile(` \|\n\s+-----BEGIN CERTIFICATE-----\n[^-]+-----END CERTIFICATE-----\n`)

// requireGolden compares a configuration, with secrets redacted, to a golden file.
func requireGolden(t *testing.T, name string, cfg config.Provider) {
	t.Helper()

	data, err := cfg.RedactSecrets("REDACTED").EncodeBytes(encoder.WithComments(encoder.CommentsDisabled))
	require.NoError(t, err)
	bundle, err := testSecrets()
	require.NoError(t, err)

	text := string(data)

	for of, certificate := range map[string][]byte{
		"talos": bundle.Certs.OS.Crt, "etcd": bundle.Certs.Etcd.Crt, "kubernetes": bundle.Certs.K8s.Crt, "aggregator": bundle.Certs.K8sAggregator.Crt,
	} {
		encode := base64.StdEncoding.EncodeToString
		text = strings.ReplaceAll(text, encode(certificate), encode([]byte("fake certificate of "+of)))
	}

	text = pemBlock.ReplaceAllString(text, " fake certificate\n")

	goldentest.Equal(t, filepath.Join("testdata", name+".yaml"), text)
}
