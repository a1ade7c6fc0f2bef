package datacentre_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
)

// TestNewCDsBootLast: `qm set --scsi1 none,media=cdrom --boot order=scsi0` of a VM with the order net0 gave net0;scsi1
// on a real Proxmox VE 9.2.6 three times of six, which no recording can say.
func TestNewCDsBootLast(t *testing.T) {
	t.Parallel()

	d := open(t, fastOptions(t))
	ok(t, d)(d.CreateVM(root, "pve1", 100, datacentre.Config{"net0": "virtio,bridge=vmbr0"}))

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
	assert.Equal(t, "order=scsi0;ide2", order(datacentre.Config{"ide2": "none,media=cdrom"}), "it is in there already")
	assert.Equal(t, "order=scsi0", order(datacentre.Config{"delete": "ide2"}))
}

// TestAVLANNeedsAPortOfItsBridge is what a real Proxmox VE 9.2.6 answered; the recorder does not count on a bridge
// without a port.
func TestAVLANNeedsAPortOfItsBridge(t *testing.T) {
	t.Parallel()

	o := fastOptions(t)
	o.Hosts[0].Bridges = []string{"vmbr0", "vmbr1"}
	d := open(t, o)

	const card = "virtio=02:00:00:00:00:01,bridge=vmbr1"

	ok(t, d)(d.CreateVM(root, "pve1", 100, basic(datacentre.Config{"net0": card})))
	ok(t, d)(d.Start(root, "pve1", 100))

	nets := func() (now, next string) {
		vm, _ := d.VM(100)

		return vm.Current["net0"], vm.Config["net0"]
	}

	err := d.SetConfig(root, "pve1", 100, datacentre.Config{"net0": card + ",tag=7"})
	require.EqualError(t, err,
		"Parameter verification failed. map[net0:hotplug problem - no physical interface on bridge 'vmbr1']")

	now, next := nets()
	assert.Equal(t, card, now)
	assert.Equal(t, card+",tag=7", next, "the change waits all the same")

	require.NoError(t, d.SetConfig(root, "pve1", 100, datacentre.Config{"revert": "net0"}))

	_, next = nets()
	assert.Equal(t, card, next)

	const tagged = "virtio=02:00:00:00:00:01,bridge=vmbr0,tag=7"

	require.NoError(t, d.SetConfig(root, "pve1", 100, datacentre.Config{"net0": tagged}))

	now, _ = nets()
	assert.Equal(t, tagged, now, "a card is moved while its machine runs")
}
