package engine_test

import (
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
)

// TestAddressesOfOtherGuests: a preview refuses a planned address that another guest has, warns while that guest is
// off, and reads no guest once nothing is new.
func TestAddressesOfOtherGuests(t *testing.T) {
	t.Parallel()

	const foreign = 9000

	w := newWorld(t, testSpeed)
	text := w.stack(1, 1).yaml(t)
	address := w.network + ".1.20"

	w.requireTask(w.lab.Data.CreateVM(labRoot, "pve1", foreign, datacentre.Config{
		"name": "db", "memory": "512", "net0": "virtio,bridge=vmbr0", "ipconfig0": "ip=" + address + "/24",
	}))

	const remedy = "; choose another address, or change that of the guest"

	assert.Contains(t, w.previewOutput(text), "one-general-1 would have "+address+
		", which VM 9000 (db on pve1) has, and is off: they must not run at the same time"+remedy)

	w.startVM(foreign)

	before := len(w.output())
	_, err := w.preview(text)
	require.Error(t, err)
	assert.Contains(t, w.output()[before:], "clusters[0].workers[0].firstAddress: one-general-1 would have "+address+
		", which VM 9000 (db on pve1) has"+remedy)

	w.removeVM(foreign)
	w.up(text)

	w.requireTask(w.lab.Data.CreateVM(labRoot, "pve1", foreign, datacentre.Config{
		"name": "db", "memory": "512", "net0": "virtio,bridge=vmbr0", "ipconfig0": "ip=" + address + "/24",
	}))
	w.up(text, optup.ExpectNoChanges())
	assert.NotContains(t, w.previewOutput(text), "would have "+address, "no guest is read where nothing is new")
}
