package components

import (
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/enginetest"
	"talos-proxmox/internal/tokens"
)

// TestVolumes: the command makes the volume before the VM, and its result is the path of the disk.
func TestVolumes(t *testing.T) {
	t.Parallel()

	n := plannedNode(RoleWorker, 0, "pve1")
	n.Machine.ExtraDisks = []Disk{
		{Interface: "virtio1", SizeGiB: 1},
		{Interface: "virtio2", SizeGiB: 2, Volume: "data"},
		{Interface: "virtio3", SizeGiB: 3, Volume: "more", Added: true},
	}

	r := registerSingleNode(t, enginetest.Options{}, n, plannedNetwork())
	vm := r.ByType(tokens.VirtualMachine)[n.Name+"-vm"]

	var paths []string

	for _, disk := range vm.Input("disks").ArrayValue() {
		path := disk.ObjectValue()["pathInDatastore"]
		require.False(t, path.IsSecret())

		if path.IsString() {
			paths = append(paths, path.StringValue())
		} else {
			paths = append(paths, "")
		}
	}

	require.Len(t, paths, 4)
	assert.Empty(t, paths[0]+paths[1])
	assert.Regexp(t, `^vm-999999999-[0-9a-f]{16}-one-general-1-data\.raw$`, paths[2])
	assert.Regexp(t, `^vm-999999999-[0-9a-f]{16}-one-general-1-more\.raw$`, paths[3])

	ignored := vm.Request.GetIgnoreChanges()
	assert.Contains(t, ignored, "disks[2].pathInDatastore")
	assert.Contains(t, ignored, "disks[2].size")
	assert.NotContains(t, ignored, "disks[1].size")
	assert.NotContains(t, ignored, "disks[3].size")

	command, registered := r.ByType(tokens.LocalCommand)[n.Name+"-volume-data"]
	require.True(t, registered)
	assert.Contains(t, command.Input("create").StringValue(), " volume")
	assert.Contains(t, command.Input("delete").StringValue(), " volume --remove")
	assert.True(t, command.Input("stdin").IsSecret())

	var waitsFor []string
	for _, urn := range vm.Request.GetDependencies() {
		waitsFor = append(waitsFor, resource.URN(urn).Name())
	}

	assert.Contains(t, waitsFor, n.Name+"-volume-data")
	assert.Contains(t, waitsFor, n.Name+"-volume-more")

	preview := registerSingleNode(t, enginetest.Options{Preview: true}, n, plannedNetwork())
	disk := preview.ByType(tokens.VirtualMachine)[n.Name+"-vm"].Input("disks").ArrayValue()[2].ObjectValue()
	assert.True(t, disk["pathInDatastore"].IsComputed() || disk["pathInDatastore"].IsOutput(), "unknown until it exists")
}
