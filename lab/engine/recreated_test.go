package engine_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optpreview"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
)

// TestRecreatedMachines deletes machines manually, and rolls one back: a recreated machine gets its configuration
// again, and the health gate checks it.
func TestRecreatedMachines(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	w.setGateTimeout("60s")

	s := w.stack(3, 1)
	w.up(s.yaml(t))
	_, err := w.preview(s.yaml(t), optpreview.ExpectNoChanges())
	require.NoError(t, err, w.output())

	for _, name := range []string{"one-cp-2", "one-general-1"} {
		w.removeVM(w.vm(name).ID)
	}

	done := w.up(s.yaml(t), optup.Refresh())
	assert.Equal(t, []string{"VirtualMachine one-cp-2-vm", "VirtualMachine one-general-1-vm"}, vms(done.withOp("create")))
	assert.Equal(
		t,
		[]string{
			"Command one-cp-2-configuration", "Command one-general-1-configuration", "Command one-healthy",
		},
		replaced(done),
	)
	w.requireRunning(4)
	w.requireMembers(3)
	w.up(s.yaml(t), optup.Refresh(), optup.ExpectNoChanges())

	// A rollback to a snapshot, like a restored backup, gives the machine a new generation; a preview shows what follows.
	worker := w.vm("one-general-1")
	w.stopVM(worker.ID)
	require.NoError(t, w.lab.Data.SetConfig(labRoot, worker.Host, worker.ID, datacentre.Config{"vmgenid": "1"}))
	w.startVM(worker.ID)
	require.Eventually(t, func() bool {
		return w.machineStatus("one-general-1").Stage == "running"
	}, within, 100*time.Millisecond)

	again := []string{"Command one-general-1-configuration", "Command one-healthy"}
	_, err = w.preview(s.yaml(t), optpreview.ExpectNoChanges())
	require.Error(t, err)

	done = w.up(s.yaml(t))
	assert.Equal(t, again, replaced(done))
	assert.Empty(t, vms(done.withOp("update")))

	// A migrated machine is the same machine.
	target := map[string]string{"pve1": "pve2", "pve2": "pve1"}[worker.Host]
	w.requireTask(
		w.lab.Data.Migrate(
			labRoot, worker.Host, worker.ID, datacentre.Config{"target": target, "online": "1", "with-local-disks": "1"},
		),
	)
	w.up(s.yaml(t), optup.Refresh(), optup.ExpectNoChanges())
	w.requireRunning(4)
}

// TestLostControlPlanes: a cluster without control planes is bootstrapped again only if the stack file says so, and
// once for each value. Only the workers are left, whose kubelets register their nodes when they start.
func TestLostControlPlanes(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	w.setGateTimeout("60s")

	s := w.stack(1, 1)
	w.up(s.yaml(t))

	lose := func() {
		w.removeVM(w.vm("one-cp-1").ID)
	}
	refused := func(why string) {
		output := w.outputOf(func() {
			_, err := w.tryUp(t.Context(), s.yaml(t), optup.Refresh())
			require.Error(t, err)
		})
		assert.Contains(t, output, "none of its control planes (one-cp-1) has etcd data")
		assert.Contains(t, output, why)
		w.requireMembers(0)
	}

	lose()
	refused("such as the day: set one")
	refused("such as the day: set one")

	s.Clusters[0].BootstrapEmpty = "first"
	// The gate passes if the worker has restarted by itself, as it does after a while without a CNI.
	if _, err := w.tryUp(t.Context(), s.yaml(t), optup.Refresh()); err != nil {
		assert.Contains(t, w.output(), "one-general-1: node: is not registered")
	}

	w.requireMembers(1)

	worker := w.vm("one-general-1")
	w.requireTask(w.lab.Data.Reset(labRoot, worker.Host, worker.ID))
	w.up(s.yaml(t), optup.Refresh())
	w.requireRunning(2)
	w.up(s.yaml(t), optup.Refresh(), optup.ExpectNoChanges())

	lose()
	refused(`"first" was used for that already: set another one`)
}

// replaced returns the resources that a run replaced: the last event about one is the deletion of the former one.
func replaced(done steps) []string { return done.withOp("delete-replaced") }

// TestUpAfterAFailedUp: the next up does not succeed while the change is missing: the state has the requested values.
// The lab's Resume refreshes by itself.
func TestUpAfterAFailedUp(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	s := w.stack(1, 1)
	s.Clusters[0].WorkerMemory = 2048
	w.up(s.yaml(t))

	worker := w.vm("one-general-1")
	s.Clusters[0].WorkerMemory = 3072
	unlock := w.addFault(datacentre.Fault{Lock: "backup", VMID: worker.ID})

	e := w.engine(s.yaml(t))
	defer e.Close()

	require.Error(t, e.Resume(t.Context()))
	unlock()

	output := w.failedUp(s.yaml(t))
	assert.Contains(t, output, "one-general-1 (VM 3000 on host "+worker.Host+") is not as planned: memory 2048 → 3072 MiB.")
	assert.Contains(t, output, "`pulumi up --refresh` fixes it")

	require.NoError(t, e.Resume(t.Context()), w.output())

	worker, _ = w.lab.Data.VM(worker.ID)
	assert.Equal(t, "3072", worker.Config["memory"])
	assert.Contains(t, w.output(), "The last up failed")

	w.stopVM(worker.ID)

	_, err := w.preview(s.yaml(t))
	require.NoError(t, err)
	assert.Contains(t, w.output(), "is stopped: `pulumi up --refresh` starts it")
	assert.Contains(t, w.failedUp(s.yaml(t)), "is not as planned: it is stopped.")
	w.up(s.yaml(t), optup.Refresh())
	w.requireRunning(2)
	w.up(s.yaml(t), optup.ExpectNoChanges())
}

// TestAChangeWhoseRestartFailed: the next run restarts the machine, although its configuration already has the change,
// so that a refresh finds no difference.
func TestAChangeWhoseRestartFailed(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	s := w.stack(1, 2)
	s.Clusters[0].WorkerMemory = 2048
	w.up(s.yaml(t))

	worker := w.vm("one-general-1")
	s.Clusters[0].WorkerMemory = 3072
	removeFault := w.addFault(datacentre.Fault{
		Path: "/qemu/3000/status/reboot$", Method: "POST", Status: 500, Message: "VM is paused - cannot shutdown",
	})

	output := w.failedUp(s.yaml(t))
	assert.Contains(t, output, "VM is paused - cannot shutdown")
	assert.Contains(t, output, "What to do: VM 3000 is paused: `qm status 3000 --verbose` on "+worker.Host)

	_, err := w.tryUp(t.Context(), s.yaml(t), optup.Refresh())
	require.Error(t, err)
	assert.Contains(t, w.output(), "one-general-1 (VM 3000 on host "+worker.Host+") is not as planned: memory 2048 → 3072 MiB. "+
		"Its configuration has it, and its restart failed: Proxmox answers 500 VM is paused - cannot shutdown")
	removeFault()

	const restarts = "one-general-1 (VM 3000 on host %s) is restarted to finish an earlier update: memory 2048 → 3072 MiB"

	_, err = w.preview(s.yaml(t))
	require.NoError(t, err)
	assert.Contains(t, w.output(), fmt.Sprintf(restarts, worker.Host))

	before := w.tasksOf(worker.ID)

	w.up(s.yaml(t))
	assert.Equal(t, append(before, "qmreboot"), w.tasksOf(worker.ID))
	w.requireRunning(3)
	w.up(s.yaml(t), optup.Refresh(), optup.ExpectNoChanges())
}

// TestAReplacedMachineIsClonedOnItsHost: a running machine ignores changes of clone, since it never follows its
// template; the engine nevertheless uses the program's inputs for a replacement, also for a requested one.
func TestAReplacedMachineIsClonedOnItsHost(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	s := w.stack(1, 1)
	on := func(host string, vmid int) string {
		s.Clusters[0].WorkerYAML = fmt.Sprintf(`nodes: {"1": {host: %s, vmid: %d}}`, host, vmid)

		return s.yaml(t)
	}
	clonedOn := func(host string, vmid int) {
		t.Helper()

		tasks := w.lab.Data.Tasks()
		slices.SortFunc(tasks, func(a, b datacentre.Task) int { return a.StartTime.Compare(b.StartTime) })
		clones := slices.DeleteFunc(tasks, func(task datacentre.Task) bool { return task.Type != "qmclone" })
		last := clones[len(clones)-1]

		source, err := strconv.Atoi(last.ID)
		require.NoError(t, err)
		assert.Equal(t, []string{host, host, host}, []string{last.Host, w.hostOf(source), w.hostOf(vmid)})
		assert.NotContains(t, w.tasksOf(vmid), "qmigrate")
	}

	w.up(on("pve1", 3000))
	clonedOn("pve1", 3000)

	done := w.up(on("pve2", 3050))
	assert.Equal(t, "create-replacement", done["VirtualMachine one-general-1-vm"])
	clonedOn("pve2", 3050)

	file := on("pve1", 3050)
	done = w.up(file, optup.Replace([]string{w.urnOf(file, "one-general-1-vm")}))
	assert.Equal(t, "create-replacement", done["VirtualMachine one-general-1-vm"])
	clonedOn("pve1", 3050)
}
