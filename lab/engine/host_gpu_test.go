package engine_test

import (
	"strings"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
)

// gpuStackFile is a stack file with a GPU worker on pve1, whose preparation may reboot as configured, and one control
// plane on pve2.
func (w *world) gpuStackFile(t *testing.T, reboot string) string {
	t.Helper()

	text := w.stackWithPrep(t, ", prep: {reboot: "+reboot+"}, gpus: [{name: rtx4000, pci: '01:00', generation: ada}]", "")

	return text +
		"      gpuWorkers:\n        - {name: gpu, count: 1, gpu: rtx4000, cores: 2, memoryMiB: 4096, diskGiB: 20}\n"
}

// refusedUp runs an up that has to fail before it touches a machine, and returns its output.
func (w *world) refusedUp(stack string) string {
	w.t.Helper()

	before := w.lab.Data.VMs()

	return w.outputOf(func() {
		done, err := w.tryUp(w.t.Context(), stack)
		require.Error(w.t, err)
		assert.Empty(w.t, vms(append(done.withOp("create"), done.withOp("update")...)))
		assert.Equal(w.t, before, w.lab.Data.VMs())
	})
}

// TestAGPUMachineWaitsForTheHostsReboot prepares a fresh host and does not reboot it: neither the GPU machine is
// created nor what the engine had not begun yet, and the same up completes after the reboot. Then the hardware changes.
func TestAGPUMachineWaitsForTheHostsReboot(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	text := w.gpuStackFile(t, "never")

	_, err := w.tryUp(t.Context(), text)
	require.Error(t, err)
	assert.Contains(t, w.output(), "pve1 cannot give its devices to machines yet:")
	assert.Contains(t, w.output(), "the kernel runs without iommu=pt")
	assert.Contains(t, w.output(), "0000:01:00.0 is bound to nouveau")
	assert.Contains(t, w.output(), "reboot it when it suits, then run this again")
	assert.NotContains(t, w.machines(), "one-gpu-1")

	w.reboot("pve1")
	w.up(text)
	assert.Equal(t, map[string]int{"one-cp-1": firstControlPlane, "one-gpu-1": 4000}, w.machines())
	done := w.up(text, optup.ExpectNoChanges())
	assert.Empty(t, done)

	// The GPU moves to another slot.
	require.NoError(
		t, w.lab.Data.ChangeHost("pve1", datacentre.HostChange{MovePCI: [2]string{"0000:01:00", "0000:41:00"}}),
	)
	w.reboot("pve1")

	output := w.refusedUp(text)
	assert.Contains(t, output, "hosts[0].gpus[0].pci: 0000:01:00 is not there on pve1: its NVIDIA GPUs are 0000:41:00.0")
	assert.NotContains(t, output, "cannot be carried out", "each problem is reported once")

	// It moves back, into the IOMMU group of the boot disk's controller.
	require.NoError(t, w.lab.Data.ChangeHost("pve1", datacentre.HostChange{
		MovePCI: [2]string{"0000:41:00", "0000:01:00"}, GroupWith: [2]string{"0000:01:00", "0000:02:00.0"},
	}))
	w.reboot("pve1")

	output = w.refusedUp(text)
	assert.Contains(t, output, "hosts[0].gpus[0].pci: 0000:01:00 on pve1 shares IOMMU group")
	assert.Contains(t, output, "NVMe SSD Controller")
	assert.Contains(t, output, "which the host would lose; use another slot")
}

// TestAHostInUseIsNotRebooted prepares a host on which a machine runs: the program reports that, and only the GPU
// machine waits. Once the host is idle, the same up resumes.
func TestAHostInUseIsNotRebooted(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	plain := strings.Replace(w.stackWithPrep(t, "", ""), "hosts: [pve2]", "hosts: [pve1]", 1)
	w.up(plain)

	text := strings.Replace(w.gpuStackFile(t, "whenIdle"), "hosts: [pve2]", "hosts: [pve1]", 1)
	boot := w.readHost("pve1", "proc/sys/kernel/random/boot_id")

	_, err := w.tryUp(t.Context(), text)
	require.Error(t, err)
	assert.Contains(
		t, w.output(), "pve1 is not rebooted: 2000 run on it; shut them down and run this again, or reboot it yourself",
	)
	assert.Contains(t, w.output(), "reboot it when it suits (2000 run on it), then run this again")
	assert.Equal(t, boot, w.readHost("pve1", "proc/sys/kernel/random/boot_id"))
	assert.NotContains(t, w.machines(), "one-gpu-1")
	w.requireRunning(1)

	w.stopVM(2000)

	w.up(text)
	assert.NotEqual(t, boot, w.readHost("pve1", "proc/sys/kernel/random/boot_id"))
	assert.Contains(t, w.machines(), "one-gpu-1")
	w.requireRunning(2)
}

// TestABrokenConnectionInTheMiddleOfAnApply reboots the host during its preparation; the next up completes it.
func TestABrokenConnectionInTheMiddleOfAnApply(t *testing.T) {
	t.Parallel()

	w := newWorld(t, 2)
	text := w.stackWithPrep(t, fullPrep, "")
	rebooted := make(chan error, 1)

	go func() {
		// The files are in place, but the boot loader is not updated yet.
		for deadline := time.Now().Add(within); w.readHost(
			"pve1", "var/lib/talos-proxmox/todo",
		) == "" && time.Now().Before(deadline); {
			time.Sleep(5 * time.Millisecond)
		}

		rebooted <- w.lab.Data.RebootHost("pve1")
	}()

	_, err := w.tryUp(t.Context(), text)
	require.NoError(t, <-rebooted)
	require.Error(t, err, "the host rebooted under the script")
	assert.NotEmpty(t, w.readHost("pve1", "var/lib/talos-proxmox/todo"))

	w.awaitHost("pve1")
	w.awaitTasks() // a download on another host, which the program no longer sees, continues
	w.up(text)
	assert.Empty(t, w.readHost("pve1", "var/lib/talos-proxmox/todo"))
	assert.Equal(t, "1\n", w.readHost("pve1", "var/lib/talos-proxmox/revision"))
	done := w.up(text, optup.ExpectNoChanges())
	assert.Empty(t, done)
	w.reboot("pve1")
	assert.Contains(t, w.readHost("pve1", "proc/cmdline"), "iommu=pt")
}
