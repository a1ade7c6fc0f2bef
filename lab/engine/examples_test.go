package engine_test

import (
	"strconv"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	example "talos-proxmox/examples/one-node/cluster"
	"talos-proxmox/lab/engine"
)

// TestExampleOneNode runs examples/one-node, which uses only the project's components.
func TestExampleOneNode(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)

	connection, err := w.lab.Connection()
	require.NoError(t, err)

	host := connection.Hosts[0]

	w.options.Program = example.OneNode
	w.configure = func(c *engine.Config) {
		for key, value := range map[string]string{
			"node": host.Name, "host": host.Address, "port": strconv.Itoa(host.Port), "hostKey": host.HostKey,
			"network": w.network + ".1.0/24", "gateway": w.network + ".1.1", "address": w.network + ".1.10/24",
		} {
			c.Values["talos-proxmox:"+key] = value
		}

		c.Secrets["talos-proxmox:privateKey"] = connection.PrivateKey
	}

	assert.Contains(t, w.up(programStack).withOp("create"), "TalosCluster one")
	assert.Equal(t, map[string]int{"one-cp-1": 2000}, w.machines())
	w.requireRunning(1)
	assert.Contains(t, w.outputs()["kubeconfig"].Value, "client-key-data")
	assert.True(t, w.outputs()["kubeconfig"].Secret)

	assert.Empty(t, w.up(programStack, optup.ExpectNoChanges()))

	w.destroy(programStack)
	w.requireEmpty()
}
