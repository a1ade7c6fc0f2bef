package engine_test

import (
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
)

// buildVMID is the VMID of systemStack's template on pve1.
const buildVMID = 941

// buildRuns reports whether a build's guest is on.
func buildRuns(w *world) bool {
	vm, found := w.lab.Data.VM(buildVMID)

	return found && vm.Running
}

// TestSystemBuildFailures lets builds of a template fail in every way that a fake host command cannot show. Each error
// says what was wrong and what to do, and leaves nothing: the next build starts anew, and the last one, without a
// fault, builds the template.
func TestSystemBuildFailures(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	healthy := debianStack()
	healthy.Count = 1

	gone, wrong, slow := healthy, healthy, healthy
	gone.Build, gone.Checksum = "20250101-1", "sha512:"+strings.Repeat("0", 128)
	wrong.Checksum = "sha512:" + strings.Repeat("1", 128)
	slow.Minutes = 2

	rows := []struct {
		name  string
		stack systemStack
		fault datacentre.Fault
		// during sets the fault while the guest installs.
		during   bool
		messages []string
	}{
		{
			name: "the image is gone", stack: gone,
			messages: []string{"20250101-1", "404 Not Found", "choose a build", "templates.<class>.url"},
		},
		{
			name: "the image is another file", stack: wrong,
			messages: []string{"checksum mismatch: got", "11111111", "compare it with what the publisher states"},
		},
		{
			name: "no room for the image", stack: healthy, fault: datacentre.Fault{Full: "local"},
			messages: []string{"No space left on device", "local"},
		},
		{
			name: "a package that no mirror has", stack: healthy, fault: datacentre.Fault{NoPackage: "htop"},
			messages: []string{"its installation failed: cloud-init ended with errors", "Unable to locate package htop"},
		},
		{
			name: "no network", stack: healthy, fault: datacentre.Fault{NoNetwork: true, VMID: buildVMID},
			messages: []string{"its installation failed: cloud-init ended with errors", "no DHCP server answers"},
		},
		{
			name: "the network is lost", stack: healthy, fault: datacentre.Fault{NoNetwork: true, VMID: buildVMID}, during: true,
			messages: []string{"its installation failed: cloud-init ended with errors", "Temporary failure resolving"},
		},
		{
			name: "the build hangs", stack: slow, fault: datacentre.Fault{Hangs: true, VMID: buildVMID},
			messages: []string{"did not end within 2 minutes", "buildMinutes", "rcu_sched"},
		},
		{
			name: "no room for the seed", stack: healthy, fault: datacentre.Fault{Full: "local"},
			messages: []string{"No space left on device", "is local full?"},
		},
		{
			name: "no room for the disk", stack: healthy, fault: datacentre.Fault{Full: "local-lvm"},
			messages: []string{"free space in thin pool pve/data reached threshold"},
		},
		{
			name: "it does not start", stack: healthy,
			fault:    datacentre.Fault{Task: "qmstart", Message: "start failed: QEMU exited with code 1"},
			messages: []string{"QEMU exited with code 1", "unable to start VM 941"},
		},
	}

	for _, row := range rows {
		before := len(w.output())

		switch {
		case row.during:
			w.when(t.Context(), buildRuns, func() { w.addFault(row.fault) })
		case row.fault != datacentre.Fault{}:
			w.addFault(row.fault)
		}

		_, err := w.tryUp(t.Context(), row.stack.yaml(w))
		require.Error(t, err, row.name)

		output := w.output()[before:]
		for _, part := range row.messages {
			assert.Contains(t, output, part, row.name)
		}

		require.NoError(t, w.lab.Data.ClearFaults())
		assert.Empty(t, w.lab.Data.VMs(), row.name)
		assert.Empty(t, w.seedImages(), row.name)
	}

	// Killed runs leave a build whose guest may continue; the next run stops it, removes it, and builds anew. The guest of
	// the second one does not end by itself.
	w.killedUp(healthy.yaml(w), buildRuns, true)
	w.recover()
	w.addFault(datacentre.Fault{Hangs: true, VMID: buildVMID})

	former, _ := w.lab.Data.VM(buildVMID)
	w.killedUp(healthy.yaml(w), func(w *world) bool {
		vm, found := w.lab.Data.VM(buildVMID)

		return found && vm.Running && vm.PID != former.PID
	}, true)
	w.recover()
	require.NoError(t, w.lab.Data.ClearFaults())

	w.up(healthy.yaml(w))
	w.builtTemplate(healthy)
	w.up(healthy.yaml(w), optup.ExpectNoChanges())
	assert.Empty(t, w.seedImages())
	w.destroy(healthy.yaml(w))
	w.requireEmpty()
}
