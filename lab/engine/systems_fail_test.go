package engine_test

import (
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
)

// buildVMID is the number of the template that systemStack has on pve1.
const buildVMID = 941

// set adds a fault.
func (w *world) set(f datacentre.Fault) {
	_, err := w.lab.Data.AddFault(f)
	assert.NoError(w.t, err)
}

// installs says that a build's guest is on.
func installs(w *world) bool {
	vm, found := w.lab.Data.VM(buildVMID)

	return found && vm.Running
}

// TestFailuresOfSystems lets builds of a template fail in every way that no stand-in of a host's command shows. Each
// says what was wrong and what to do, and leaves nothing: the next begins anew, and the last, with nothing in its way,
// makes the template.
func TestFailuresOfSystems(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	healthy := debians()
	healthy.Count = 1

	gone, wrong, slow := healthy, healthy, healthy
	gone.Build, gone.Checksum = "20250101-1", "sha512:"+strings.Repeat("0", 128)
	wrong.Checksum = "sha512:" + strings.Repeat("1", 128)
	slow.Minutes = 2

	rows := []struct {
		row   string
		stack systemStack
		fault datacentre.Fault
		// during sets the fault while the guest installs.
		during bool
		says   []string
	}{
		{
			row: "the image is gone", stack: gone,
			says: []string{"20250101-1", "404 Not Found", "choose a build", "templates.<class>.url"},
		},
		{
			row: "the image is another file", stack: wrong,
			says: []string{"checksum mismatch: got", "11111111", "compare it with what the publisher states"},
		},
		{
			row: "no room for the image", stack: healthy, fault: datacentre.Fault{Full: "local"},
			says: []string{"No space left on device", "local"},
		},
		{
			row: "a package that no mirror has", stack: healthy, fault: datacentre.Fault{NoPackage: "htop"},
			says: []string{"its installation failed: cloud-init ended with errors", "Unable to locate package htop"},
		},
		{
			row: "no network", stack: healthy, fault: datacentre.Fault{NoNetwork: true, VMID: buildVMID},
			says: []string{"its installation failed: cloud-init ended with errors", "no DHCP server answers"},
		},
		{
			row: "the network is lost", stack: healthy, fault: datacentre.Fault{NoNetwork: true, VMID: buildVMID}, during: true,
			says: []string{"its installation failed: cloud-init ended with errors", "Temporary failure resolving"},
		},
		{
			row: "it never ends", stack: slow, fault: datacentre.Fault{Hangs: true, VMID: buildVMID},
			says: []string{"did not end within 2 minutes", "buildMinutes", "rcu_sched"},
		},
		{
			row: "no room for the seed", stack: healthy, fault: datacentre.Fault{Full: "local"},
			says: []string{"No space left on device", "is local full?"},
		},
		{
			row: "no room for the disk", stack: healthy, fault: datacentre.Fault{Full: "local-lvm"},
			says: []string{"free space in thin pool pve/data reached threshold"},
		},
		{
			row: "it does not start", stack: healthy,
			fault: datacentre.Fault{Task: "qmstart", Message: "start failed: QEMU exited with code 1"},
			says:  []string{"QEMU exited with code 1", "unable to start VM 941"},
		},
	}

	for _, row := range rows {
		before := len(w.said())

		switch {
		case row.during:
			w.when(t.Context(), installs, func() { w.set(row.fault) })
		case row.fault != datacentre.Fault{}:
			w.set(row.fault)
		}

		_, err := w.tryUp(t.Context(), row.stack.yaml(w))
		require.Error(t, err, row.row)

		said := w.said()[before:]
		for _, part := range row.says {
			assert.Contains(t, said, part, row.row)
		}

		require.NoError(t, w.lab.Data.ClearFaults())
		assert.Empty(t, w.lab.Data.VMs(), row.row)
		assert.Empty(t, w.seeds(), row.row)
	}

	// Runs that are killed leave a build whose system may go on; the next one stops it, removes it, and begins anew. Of
	// the second, the system does not end by itself.
	w.killed(healthy.yaml(w), installs, true)
	w.recover()
	w.set(datacentre.Fault{Hangs: true, VMID: buildVMID})

	former, _ := w.lab.Data.VM(buildVMID)
	w.killed(healthy.yaml(w), func(w *world) bool {
		vm, found := w.lab.Data.VM(buildVMID)

		return found && vm.Running && vm.PID != former.PID
	}, true)
	w.recover()
	require.NoError(t, w.lab.Data.ClearFaults())

	w.up(healthy.yaml(w))
	w.built(healthy)
	w.up(healthy.yaml(w), optup.ExpectNoChanges())
	assert.Empty(t, w.seeds())
	w.destroy(healthy.yaml(w))
	w.requireEmpty()
}
