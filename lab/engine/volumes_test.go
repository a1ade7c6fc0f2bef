package engine_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/ownership"
	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/image"
)

// TestKeptVolumes takes a worker with a volume through its replacement, removal and return: it gets the volume back
// with its data, which no run deletes.
func TestKeptVolumes(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	s := w.stack(1, 1)
	s.Clusters[0].WorkerYAML = "extraDisks: [{sizeGiB: 10, volume: data}]"
	workers := func(count int) string {
		s.Clusters[0].Workers = count

		return s.yaml(t)
	}

	w.up(workers(1))

	first := w.vm("one-general-1")
	attached, _, _ := strings.Cut(first.Config["virtio1"], ",")
	volume, outlives := ownership.VolumeOf(attached)
	require.True(t, outlives, first.Config)
	assert.Equal(t, "one-general-1", volume.Machine)

	marker := image.Image{State: json.RawMessage(`"marker"`)}
	require.NoError(t, w.lab.Data.WriteVolume(attached, marker))

	requireKept := func() {
		t.Helper()

		content, err := w.lab.Data.ReadVolume(attached)
		require.NoError(t, err)
		require.Equal(t, marker, content)
	}
	requireAttached := func() {
		t.Helper()
		assert.Contains(t, w.vm("one-general-1").Config["virtio1"], attached+",")
		requireKept()
	}

	w.up(workers(1), optup.Refresh(), optup.ExpectNoChanges())
	w.up(workers(1), optup.Replace([]string{w.urnOf(workers(1), "one-general-1-vm")}))
	assert.NotEqual(t, first.Config["vmgenid"], w.vm("one-general-1").Config["vmgenid"], "it is another machine")
	requireAttached()

	assert.Contains(t, w.previewOutput(workers(0)), "the volumes of one-general-1 stay, with their data: data")

	output := w.outputOf(func() { w.up(workers(0)) })
	assert.Contains(t, output, "volume data of one-general-1 stays, with its data")
	assert.NotContains(t, w.machines(), "one-general-1")
	requireKept()

	w.up(workers(1))
	requireAttached()

	// The second machine's volume is another stack's.
	theirs := ownership.Volume{StackID: "00ff", Machine: "one-general-2", Name: "data"}
	_, err := w.lab.Data.AllocateVolume(
		t.Context(), first.Host, "local-lvm", theirs.File(), ownership.VolumesVMID, 10*datacentre.GiB,
	)
	require.NoError(t, err)
	assert.Contains(t, w.failedUp(workers(2)), "is there already, of the stack with the id 00ff")
	assert.NotContains(t, w.machines(), "one-general-2")

	output = w.outputOf(func() { w.destroy(workers(1)) })
	assert.Contains(t, output, "volume data of one-general-1 stays, with its data")
	assert.Empty(t, w.machines())
	requireKept()
}
