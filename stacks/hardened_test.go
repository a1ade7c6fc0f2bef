package stacks

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/talos"
)

// TestHardenedOnEveryRelease: each supported release accepts the machine configurations of a hardened cluster.
func TestHardenedOnEveryRelease(t *testing.T) {
	t.Parallel()

	content, err := os.ReadFile("testdata/Pulumi.hardened.yaml")
	require.NoError(t, err)

	for _, release := range talos.Releases() {
		if release.Support != talos.Supported {
			continue
		}

		file := strings.NewReplacer(
			"v1.14.4", release.Newest, "v1.37.2", release.DefaultKubernetes,
			// of newer releases, or of Secure Boot from a disk image, which needs one
			"secureBoot: true, ", "", ", tpm: true", "", "encryption: {state: tpm, ephemeral: tpm}", "", "nts: true", "",
		).Replace(string(content))

		plan, err := PlanChecked(t.Context(), "test", []byte(file))
		require.NoError(t, err, release.Talos)

		cluster := plan.Clusters[0]
		assert.Empty(t, cluster.Unhardened(), release.Talos)

		for _, n := range cluster.Nodes() {
			volumes, err := n.Volumes(cluster.Patches)
			require.NoError(t, err)
			assert.Equal(t, "EPHEMERAL nodeID, STATE nodeID", volumes.String(), release.Talos)
		}
	}
}
