package datacentre_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
)

// TestNewCDsBootLast: on a real Proxmox VE 9.2.6, `qm set --scsi1 none,media=cdrom --boot order=scsi0` on a VM with the
// order net0 resulted in net0;scsi1 three times of six, which a recording cannot express.
func TestNewCDsBootLast(t *testing.T) {
	t.Parallel()

	d := open(t, fastOptions(t))
	requireOK(t, d)(d.CreateVM(root, "pve1", 100, datacentre.Config{"net0": "virtio,bridge=vmbr0"}))

	order := func(set datacentre.Config) string {
		require.NoError(t, d.SetConfig(root, "pve1", 100, set))

		vm, _ := d.VM(100)

		return vm.Config["boot"]
	}

	assert.Equal(t, "order=net0", order(datacentre.Config{"scsi0": "local-lvm:1"}))
	assert.Equal(t, "order=net0", order(datacentre.Config{"ide0": "local-lvm:cloudinit"}))
	assert.Equal(t, "order=net0;scsi1", order(datacentre.Config{"scsi1": "none,media=cdrom", "boot": "order=scsi0"}))
	assert.Equal(t, "order=scsi0", order(datacentre.Config{"boot": "order=scsi0"}))
	assert.Equal(t, "order=scsi0;ide2", order(datacentre.Config{"ide2": "none,media=cdrom"}))
	assert.Equal(t, "order=scsi0;ide2", order(datacentre.Config{"ide2": "none,media=cdrom"}), "it is already in the order")
	assert.Equal(t, "order=scsi0", order(datacentre.Config{"delete": "ide2"}))
}

// TestVLANRequiresBridgePort has the answers of a real Proxmox VE 9.2.6; the recorder does not require a bridge without
// a port.
func TestVLANRequiresBridgePort(t *testing.T) {
	t.Parallel()

	o := fastOptions(t)
	o.Hosts[0].Bridges = []string{"vmbr0", "vmbr1"}
	d := open(t, o)

	const card = "virtio=02:00:00:00:00:01,bridge=vmbr1"

	requireOK(t, d)(d.CreateVM(root, "pve1", 100, basicVM(datacentre.Config{"net0": card})))
	requireOK(t, d)(d.Start(root, "pve1", 100))

	nets := func() (now, next string) {
		vm, _ := d.VM(100)

		return vm.Current["net0"], vm.Config["net0"]
	}

	err := d.SetConfig(root, "pve1", 100, datacentre.Config{"net0": card + ",tag=7"})
	require.EqualError(t, err,
		"Parameter verification failed. map[net0:hotplug problem - no physical interface on bridge 'vmbr1']")

	now, next := nets()
	assert.Equal(t, card, now)
	assert.Equal(t, card+",tag=7", next, "the change is pending nevertheless")

	require.NoError(t, d.SetConfig(root, "pve1", 100, datacentre.Config{"revert": "net0"}))

	_, next = nets()
	assert.Equal(t, card, next)

	const tagged = "virtio=02:00:00:00:00:01,bridge=vmbr0,tag=7"

	require.NoError(t, d.SetConfig(root, "pve1", 100, datacentre.Config{"net0": tagged}))

	now, _ = nets()
	assert.Equal(t, tagged, now, "a card moves while its VM runs")
}

// TestOptionsOfDisksArePending changes the options of a running VM's disk: they apply from its next start, and a new
// size at once.
func TestOptionsOfDisksArePending(t *testing.T) {
	t.Parallel()

	d := open(t, fastOptions(t))
	requireOK(t, d)(d.CreateVM(root, "pve1", 100, basicVM(datacentre.Config{"virtio1": "local-lvm:1,cache=none"})))
	requireOK(t, d)(d.Start(root, "pve1", 100))

	disk := func() (now, next string) {
		vm, _ := d.VM(100)

		return vm.Current["virtio1"], vm.Config["virtio1"]
	}

	before, next := disk()
	require.Equal(t, before, next)

	changed := strings.Replace(before, "cache=none", "cache=writeback,iothread=1", 1)
	require.NoError(t, d.SetConfig(root, "pve1", 100, datacentre.Config{"virtio1": changed}))

	now, next := disk()
	assert.Equal(t, before, now)
	assert.Equal(t, changed, next)

	requireOK(t, d)(d.Stop(root, "pve1", 100))
	requireOK(t, d)(d.Start(root, "pve1", 100))

	now, _ = disk()
	assert.Equal(t, changed, now)
}
