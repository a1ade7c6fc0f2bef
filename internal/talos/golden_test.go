package talos

import (
	"encoding/base64"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/bundle"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
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

// fakeSecrets has a real certificate authority of the Talos API, which is required to generate a client configuration;
// the rest is obviously fake.
var fakeSecrets = sync.OnceValues(func() (*secrets.Bundle, error) {
	authority, err := secrets.NewTalosCA(time.Now())
	if err != nil {
		return nil, err
	}

	fake := func(of string) *x509.PEMEncodedCertificateAndKey {
		return &x509.PEMEncodedCertificateAndKey{Crt: []byte("fake certificate of " + of), Key: []byte("fake key of " + of)}
	}

	return &secrets.Bundle{
		Clock:      secrets.NewClock(),
		Cluster:    &secrets.Cluster{ID: "fake-cluster-id", Secret: "fake-cluster-secret"},
		Secrets:    &secrets.Secrets{BootstrapToken: "fake.token", SecretboxEncryptionSecret: "fake-secretbox"},
		TrustdInfo: &secrets.TrustdInfo{Token: "fake.trustd"},
		Certs: &secrets.Certs{
			OS:                &x509.PEMEncodedCertificateAndKey{Crt: authority.CrtPEM, Key: authority.KeyPEM},
			Etcd:              fake("etcd"),
			K8s:               fake("kubernetes"),
			K8sAggregator:     fake("aggregator"),
			K8sServiceAccount: &x509.PEMEncodedKey{Key: []byte("fake key of service accounts")},
		},
	}, nil
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

// generateConfig works like the published provider: getConfiguration generates and applies the role's patches,
// configurationApply the node's.
func generateConfig(t *testing.T, c ClusterConfig, n NodeConfig, contract string) config.Provider {
	t.Helper()

	bundleSecrets, err := fakeSecrets()
	require.NoError(t, err)
	versionContract, err := config.ParseContractFromVersion(contract)
	require.NoError(t, err)

	endpoint := n.Interfaces[0].Address.Addr()
	if c.VIP.IsValid() {
		endpoint = c.VIP
	}

	rolePatches, err := RolePatches(c, n.Role)
	require.NoError(t, err)
	loadedRolePatches, err := configpatcher.LoadPatches(rolePatches)
	require.NoError(t, err)

	machineType, withPatches := machine.TypeControlPlane, bundle.WithPatchControlPlane
	if n.Role == RoleWorker {
		machineType, withPatches = machine.TypeWorker, bundle.WithPatchWorker
	}

	generated, err := bundle.NewBundle(
		bundle.WithInputOptions(&bundle.InputOptions{
			ClusterName: "prod",
			Endpoint:    fmt.Sprintf("https://%s:6443", endpoint),
			KubeVersion: strings.TrimPrefix(newestKubernetes(contract), "v"),
			GenOptions: []generate.Option{
				generate.WithSecretsBundle(bundleSecrets), generate.WithVersionContract(versionContract),
			},
		}),
		bundle.WithVerbose(false),
		withPatches(loadedRolePatches),
	)
	require.NoError(t, err)
	input, err := generated.Serialize(encoder.CommentsDisabled, machineType)
	require.NoError(t, err)

	nodePatches, err := NodePatches(c, n, contract)
	require.NoError(t, err)
	loadedNodePatches, err := configpatcher.LoadPatches(nodePatches)
	require.NoError(t, err)
	patched, err := configpatcher.Apply(configpatcher.WithBytes(input), loadedNodePatches)
	require.NoError(t, err)
	data, err := patched.Bytes()
	require.NoError(t, err)
	final, err := configloader.NewFromBytes(data)
	require.NoError(t, err)

	return final
}

func requireValid(t *testing.T, cfg config.Provider) {
	t.Helper()

	for _, runtime := range []mode{"metal", "cloud"} {
		warnings, err := cfg.Validate(runtime, validation.WithLocal())
		require.NoError(t, err, "mode %s", runtime)
		assert.Empty(t, warnings, "mode %s", runtime)
	}
}

// requireGolden compares a configuration, with secrets redacted, to a golden file.
func requireGolden(t *testing.T, name string, cfg config.Provider) {
	t.Helper()

	data, err := cfg.RedactSecrets("REDACTED").EncodeBytes(encoder.WithComments(encoder.CommentsDisabled))
	require.NoError(t, err)
	bundleSecrets, err := fakeSecrets()
	require.NoError(t, err)

	encode := base64.StdEncoding.EncodeToString
	text := strings.ReplaceAll(
		string(data), encode(bundleSecrets.Certs.OS.Crt), encode([]byte("fake certificate of talos")),
	)

	goldentest.Equal(t, filepath.Join("testdata", name+".yaml"), text)
}
