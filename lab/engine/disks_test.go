package engine_test

import (
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optpreview"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
)

// TestExtraDisks adds disks to a machine whose first one is at scsi1, where earlier versions of the program put it, and
// to whose scsi2 the CSI plugin has attached a volume since: the first stays, the volume is untouched, and new disks
// are out of the plugin's way.
func TestExtraDisks(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	s := w.stack(1, 1)
	file := func(disks string) string {
		s.Clusters[0].WorkerYAML = "extraDisks: [" + disks + "]"

		return s.yaml(t)
	}
	machine := func(name string) datacentre.VM {
		vm, found := w.lab.Data.VM(w.machines()[name])
		require.True(t, found)

		return vm
	}

	w.up(file("{sizeGiB: 50, interface: scsi1}"))

	before := machine("one-general-1").Config
	require.Contains(t, before["scsi1"], "ssd=1")

	// Without an interface, as in stack files of that time.
	_, err := w.preview(file("{sizeGiB: 50}"), optpreview.ExpectNoChanges())
	require.NoError(t, err, w.output())

	vm := machine("one-general-1")
	attached := datacentre.Config{"scsi2": "local-lvm:7,wwn=0x5056432d49443032"}
	require.NoError(t, w.lab.Data.SetConfig(labRoot, vm.Host, vm.ID, attached))

	volume := machine("one-general-1").Config["scsi2"]

	done := w.up(file("{sizeGiB: 50}, {sizeGiB: 30}"))
	after := machine("one-general-1").Config
	assert.Equal(t, volume, after["scsi2"], "the plugin's volume is not touched")
	assert.Equal(t, before["scsi1"], after["scsi1"])
	assert.Contains(t, after["virtio2"], "size=30G")
	assert.NotContains(t, after["virtio2"], "ssd")
	assert.Equal(t, []string{"VirtualMachine one-general-1-vm"}, vms(done.withOp("update")))

	w.up(file("{sizeGiB: 50}, {sizeGiB: 30}"), optup.Refresh(), optup.ExpectNoChanges())

	// Both grow, and a new machine has both out of the plugin's way.
	s.Clusters[0].Workers = 2

	w.up(file("{sizeGiB: 60}, {sizeGiB: 40}"))

	after = machine("one-general-1").Config
	assert.Equal(t, volume, after["scsi2"])
	assert.Equal(t, strings.Replace(before["scsi1"], "size=50G", "size=60G", 1), after["scsi1"])
	assert.Contains(t, after["virtio2"], "size=40G")

	added := machine("one-general-2").Config
	assert.Contains(t, added["virtio1"], "size=60G")
	assert.Contains(t, added["virtio2"], "size=40G")
	assert.NotContains(t, added, "scsi1")

	_, err = w.preview(file("{sizeGiB: 60}, {sizeGiB: 40}"), optpreview.ExpectNoChanges())
	require.NoError(t, err, w.output())
	assert.Empty(t, w.refresh(file("{sizeGiB: 60}, {sizeGiB: 40}")))
}
