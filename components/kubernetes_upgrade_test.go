package components

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/enginetest"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/tokens"
)

// TestKubernetesIsUpgradedBeforeConfigurations expects the upgrade after that of Talos, and no other dependency.
func TestKubernetesIsUpgradedBeforeConfigurations(t *testing.T) {
	t.Parallel()

	cluster := plannedCluster(3, 1)
	cluster.Backup = &Backup{Directory: "~/backups", Recipients: []string{"age1"}, Keep: 3}
	r := registerTalosCluster(t, cluster)

	command := r.ByType(tokens.LocalCommand)["one-kubernetes"]
	assert.ElementsMatch(t, []string{"one-secrets", "one-talos"}, command.DependsOn())
	assert.Contains(t, command.Input("create").StringValue(), " kubernetes")

	req := enginetest.RequestOf[request.Kubernetes](t, command)
	assert.Equal(t, request.Kubernetes{
		Common: request.Common{ControlPlanes: []request.Node{
			{Name: "one-cp-1", Address: netip.MustParseAddr("127.1.1.10")},
			{Name: "one-cp-2", Address: netip.MustParseAddr("127.1.1.11")},
			{Name: "one-cp-3", Address: netip.MustParseAddr("127.1.1.12")},
		}},
		KubernetesVersion: "v1.35.0", Talosconfig: enginetest.TalosconfigText,
		Backup: &request.Backup{Name: "one", Directory: "~/backups", Recipients: []string{"age1"}, Keep: 3},
	}, req)

	require.NotEmpty(t, configurations(r))

	for name, apply := range configurations(r) {
		assert.Contains(t, apply.DependsOn(), "one-kubernetes", name)
	}

	more := registerTalosCluster(t, plannedCluster(3, 2)).ByType(tokens.LocalCommand)["one-kubernetes"]
	fewer := registerTalosCluster(t, plannedCluster(3, 1)).ByType(tokens.LocalCommand)["one-kubernetes"]
	assert.Equal(t, fewer.Inputs, more.Inputs, "workers do not affect it")
}
