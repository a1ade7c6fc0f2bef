package engine_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	talosclient "github.com/siderolabs/talos/pkg/machinery/client"
	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/engine"
)

// registryPassword is a password of a registry in a stack file.
const registryPassword = "marker-registry-a4f1xq7wkz"

// TestAPIServerAndRegistries: settings of the API servers and registries reach the machines, change in place, and are
// refused before anything is changed if they are invalid, or if a patch says the same.
func TestAPIServerAndRegistries(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	s := w.stack(1, 1)
	s.Clusters[0].YAML = strings.Join([]string{
		"apiServer:",
		"  oidc: {issuer: https://id.example.org, clientId: kubernetes, requiredClaims: {hd: example.org, acr: '2'}}",
		"  auditPolicy: {rules: [{level: None, nonResourceURLs: [/healthz*]}, {level: Metadata}]}",
		"  podSecurity: {enforce: restricted, exemptNamespaces: [rook-ceph]}",
		"registries:",
		"  mirrors: {docker.io: {endpoints: [https://mirror.example.org]}}",
		"  auth: {mirror.example.org: {username: robot, password: {secure: x}}}",
	}, "\n      ")
	password := registryPassword
	w.configure = func(c *engine.Config) {
		c.Secrets[`talos-proxmox:clusters[0].registries.auth["mirror.example.org"].password`] = password
	}
	file := s.yaml(t)

	w.up(file)

	controlPlane, worker := w.machineConfiguration("10"), w.machineConfiguration("20")
	provider := controlPlane.K8sAuthenticationConfig().Configuration()["jwt"].([]any)[0].(map[string]any)
	assert.Equal(t, "https://id.example.org", provider["issuer"].(map[string]any)["url"])
	assert.Nil(t, worker.K8sAuthenticationConfig(), "a worker has no API server")

	for _, machine := range []talosconfig.Provider{controlPlane, worker} {
		assert.Len(t, machine.RegistryMirrorConfigs()["docker.io"].Endpoints(), 1)
		assert.Equal(t, registryPassword, machine.RegistryAuthConfigs()["mirror.example.org"].Password())
	}

	w.up(file, optup.ExpectNoChanges())

	booted := w.bootTimes()

	file = strings.NewReplacer(
		"enforce: restricted", "enforce: baseline", "[{level: None, nonResourceURLs: [/healthz*]}, {level: Metadata}]", "[{level: Request}]",
		"https://id.example.org", "https://other.example.org", "[https://mirror.example.org]", "[https://mirror.example.org, https://second.example.org]",
	).Replace(file)
	password = "another-" + registryPassword

	preview := w.previewOutput(file)
	assert.Contains(t, preview, "changes in the machine configuration of one-cp-1")
	assert.Contains(t, preview, "RegistryAuthConfig mirror.example.org: password: another secret (in place)")
	assert.NotContains(t, preview, "with a restart")

	done := w.up(file)
	assert.Equal(t, "update", done["Command one-cp-1-configuration"])
	assert.Equal(t, booted, w.bootTimes(), "no machine restarts")
	assert.Len(t, w.machineConfiguration("20").RegistryMirrorConfigs()["docker.io"].Endpoints(), 2)
	w.up(file, optup.ExpectNoChanges())

	for place, text := range w.writtenFiles() {
		assert.False(t, strings.Contains(text, registryPassword), "the password is in %s", place)
	}

	assert.NotContains(t, w.output(), registryPassword)

	// A cluster with a secret hides why; internal/talos tests the reasons.
	const hidden = "clusters[0].patches[0]: makes the machine configuration of one-cp-1 invalid"

	for name, change := range map[string][3]string{
		"an issuer without TLS": {
			"https://other.example.org", "http://other.example.org",
			"clusters[0].apiServer.oidc.issuer: is not the address of an issuer",
		},
		"a patch with mirrors in another form": {
			"      registries:\n", "      patches: [\"machine: {registries: {mirrors: {ghcr.io: {endpoints: [https://a.example.org]}}}}\"]\n      registries:\n",
			hidden,
		},
		"a patch with another audit policy": {
			"      registries:\n", "      patches: [\"{apiVersion: v1alpha1, kind: KubeAuditPolicyConfig, configuration: {rules: [{level: None}]}}\"]\n" +
				"      registries:\n", hidden,
		},
	} {
		changed := strings.Replace(file, change[0], change[1], 1)
		require.NotEqual(t, file, changed, name)

		_, err := w.preview(changed)
		require.ErrorContains(t, err, change[2], name)
	}
}

// machineConfiguration returns the configuration of a machine of cluster one, by the last byte of its address.
func (w *world) machineConfiguration(address string) (found talosconfig.Provider) {
	w.t.Helper()

	w.withTalosClient(fmt.Sprintf("%s.1.%s", w.network, address), func(ctx context.Context, c *talosclient.Client) {
		configuration, err := safe.StateGetByID[*config.MachineConfig](ctx, c.COSI, config.ActiveID)
		require.NoError(w.t, err)

		found = configuration.Provider()
	})

	return found
}
