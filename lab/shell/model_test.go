package shell_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/scripts"
	"talos-proxmox/lab/datacentre"
)

// TestTheProjectsOwnBuildScript runs what the program sends to hosts.
func TestTheProjectsOwnBuildScript(t *testing.T) {
	t.Parallel()

	h, on := fast(t), "pve1"
	build := func(action, provenance string) (string, string, int) {
		return h.run(t, "action="+action+`; eval "$(cat)"`, scripts.Template([]scripts.Parameter{
			{Name: "host", Value: on},
			{Name: "owner", Value: "o"},
			{Name: "provenance", Value: provenance},
			{Name: "about", Value: "Talos v1.12.6"},
			{Name: "vmid", Value: "900"},
			{Name: "name", Value: "talos-v1.12.6-talos"},
			{Name: "image", Value: isoVolume},
			{Name: "datastore", Value: "local-lvm"},
			{Name: "bridge", Value: "vmbr0"},
			{Name: "cores", Value: "2"},
			{Name: "memory", Value: "2048"},
			{Name: "disk", Value: "10"},
			{Name: "stack_id", Value: "9f86"},
		}))
	}

	stdout, stderr, status := build("build", "p1")
	require.Zero(t, status, stderr)
	assert.Contains(t, stdout, "is made")

	vm, known := h.dc.VM(900)
	require.True(t, known)
	assert.True(t, vm.Template)
	assert.Contains(t, vm.Config["scsi0"], "size=10G")

	got, err := h.dc.ReadVolume(datacentre.ParseProperties(vm.Config["scsi0"], "file").Get("file"))
	require.NoError(t, err)
	assert.Equal(t, talosImage, got)

	stdout, stderr, status = build("build", "p1")
	require.Zero(t, status, stderr)
	assert.Contains(t, stdout, "is there already")

	on = "pve2"
	_, stderr, status = build("build", "p2")
	assert.NotZero(t, status)
	assert.Contains(t, stderr, "this is not pve2: the host's own name is pve1, and Proxmox VE knows it as pve1")

	on = "pve1"
	stdout, stderr, status = build("build", "p2")
	require.Zero(t, status, stderr)
	assert.Contains(t, stdout, "replaces the former one")

	stdout, stderr, status = build("remove", "p2")
	require.Zero(t, status, stderr)
	assert.Contains(t, stdout, "is removed")

	_, known = h.dc.VM(900)
	assert.False(t, known)
}
