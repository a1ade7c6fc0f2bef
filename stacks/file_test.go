package stacks

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestNodesByNumber has numbers as keys, which Pulumi accepts, and so do readers of the file without the engine.
func TestNodesByNumber(t *testing.T) {
	t.Parallel()

	file := strings.Replace(gpuStack, "config:\n", "config:\n  proxmoxve:endpoint: https://10.0.0.2:8006/\n", 1)
	file = strings.Replace(file, "count: 1, hosts: [pve3]", "count: 1, nodes: {1: {host: pve2, labels: {7: seven}}}", 1)

	plan, err := PlanFile("test", []byte(file))
	require.NoError(t, err)
	assert.Equal(t, "pve2", plan.Clusters[0].Nodes()[0].Host)
	assert.Equal(t, map[string]string{"7": "seven"}, plan.Clusters[0].Nodes()[0].Labels)
}

// TestPlanCheckedOfAnEncryptedFile: a cluster with encrypted values is planned, and said not to be checked.
func TestPlanCheckedOfAnEncryptedFile(t *testing.T) {
	t.Parallel()

	file, err := os.ReadFile(filepath.Join(decryptedOptions(t, encryptedStack).Root, "Pulumi.test.yaml"))
	require.NoError(t, err)

	plan, err := PlanChecked(t.Context(), "test", file)
	require.NoError(t, err)
	assert.Contains(t, plan.Warnings, "clusters[0]: has encrypted values, which `talos-proxmox check` reads; "+
		"its machine configurations were not checked")
}
