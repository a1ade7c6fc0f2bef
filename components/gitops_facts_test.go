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

// TestGitOpsFactsOfCilium expects the version and the values with which the program installs Cilium.
func TestGitOpsFactsOfCilium(t *testing.T) {
	t.Parallel()

	cluster := plannedCluster(3, 1)
	cluster.GitOps = &GitOps{}
	values, err := cluster.ciliumValues()
	require.NoError(t, err)
	assert.Empty(t, values)

	cluster.CNI = &CNI{
		Version: "1.20.2", Values: "bpf: {masquerade: false}",
		LoadBalancer: []AddressRange{{First: netip.MustParseAddr("127.1.1.200"), Last: netip.MustParseAddr("127.1.1.210")}},
	}
	facts := cluster.gitopsFacts()
	assert.Equal(t, "1.20.2", facts["CILIUM_VERSION"])
	assert.Equal(t, "127.1.1.200-127.1.1.210", facts["LOAD_BALANCER_POOL"])

	values, err = cluster.ciliumValues()
	require.NoError(t, err)
	assert.Contains(t, values, `"masquerade":false`)

	cluster.GitOps = nil

	req := enginetest.RequestOf[request.CNI](t, registerTalosCluster(t, cluster).ByType(tokens.LocalCommand)["one-cni"])
	assert.JSONEq(t, string(req.Release.Values), values)
}
