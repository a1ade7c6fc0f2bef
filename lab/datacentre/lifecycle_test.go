package datacentre_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
)

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
