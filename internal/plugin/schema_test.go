package plugin

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSchema(t *testing.T) {
	t.Parallel()

	spec, err := Schema(func(structure, field string) string { return structure + "." + field })
	require.NoError(t, err)

	for _, c := range servedComponents() {
		resource, is := spec.Resources[c.token]
		require.True(t, is, c.token)
		assert.True(t, resource.IsComponent)
	}

	cluster := spec.Resources["talos-proxmox:cluster:TalosCluster"]
	assert.True(t, cluster.Properties["kubeconfig"].Secret)
	assert.True(t, cluster.Properties["talosconfig"].Secret)
	assert.Equal(t, []string{"network", "nodes"}, cluster.RequiredInputs)
	assert.Equal(t, "TalosClusterArgs.nodes", cluster.InputProperties["nodes"].Description)
	assert.True(t, cluster.InputProperties["nodes"].Plain, "how many there are decides what is registered")
	assert.False(t, cluster.InputProperties["nodes"].Items.Plain, "a machine's template comes from another resource")

	machine := spec.Types["talos-proxmox:index:Machine"]
	assert.Equal(t, "Machine.", machine.Description)
	assert.True(t, machine.Properties["vmid"].Plain)
	assert.False(t, machine.Properties["template"].Plain)
	assert.NotContains(t, machine.Required, "template")

	assert.Contains(t, spec.Types, "talos-proxmox:index:TalosNode", "the node of a GPU worker")

	node := spec.Resources["talos-proxmox:node:TalosNode"]
	assert.NotContains(t, node.Required, "generation")
	assert.Contains(t, node.Required, "vmid")
	assert.False(t, node.InputProperties["patches"].Plain)
	assert.False(t, node.InputProperties["patches"].Items.Plain)
}
