package engine_test

import (
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
)

// TestDiskOptions creates a node whose disk and network devices have options, and changes an option that the provider
// leaves pending: the program restarts the node, and the next run changes nothing.
func TestDiskOptions(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	s := w.stack(1, 1)
	file := func(cache string) string {
		s.Clusters[0].WorkerYAML = "nicQueues: 2\n          " +
			"extraDisks: [{sizeGiB: 5, iothread: true, discard: false, cache: " + cache + "}]"

		return s.yaml(t)
	}
	node := func() datacentre.VM {
		vm, found := w.lab.Data.VM(w.machines()["one-general-1"])
		require.True(t, found)

		return vm
	}

	w.up(file("none"))

	before := node()
	for _, option := range []string{"iothread=1", "discard=ignore", "cache=none", "aio=io_uring"} {
		assert.Contains(t, before.Config["virtio1"], option)
	}

	assert.Contains(t, before.Config["net0"], "queues=2")
	w.up(file("none"), optup.ExpectNoChanges())

	w.up(file("writeback"))
	assert.Contains(t, w.output(), "one-general-1 restarts: disk virtio1 cache none → writeback")

	after := node()
	assert.Contains(t, after.Current["virtio1"], "cache=writeback", "it is no longer pending")
	assert.NotEqual(t, before.PID, after.PID)
	w.up(file("writeback"), optup.ExpectNoChanges())
}
