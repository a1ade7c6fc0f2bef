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

	"talos-proxmox/internal/spec"
	"talos-proxmox/lab/datacentre"
)

// TestMachinesThatAreNotWhatTheyWere deletes machines manually, and rolls one back: what comes back gets its
// configuration again, and the cluster is judged by it.
func TestMachinesThatAreNotWhatTheyWere(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	w.gateWithin("60s")

	s := stack{Network: w.network, Clusters: []cluster{one(3, 1)}}
	w.up(s.yaml(t))
	_, err := w.preview(s.yaml(t), optpreview.ExpectNoChanges())
	require.NoError(t, err, w.said())

	for _, name := range []string{"one-cp-2", "one-general-1"} {
		vm, _ := w.lab.Data.VM(w.machines()[name])
		w.remove(vm.Host, vm.ID)
	}

	done := w.up(s.yaml(t), optup.Refresh())
	assert.Equal(t, []string{"VirtualMachine one-cp-2-vm", "VirtualMachine one-general-1-vm"}, vms(done.named("create")))
	assert.Equal(
		t,
		[]string{
			"Command one-healthy", "ConfigurationApply one-cp-2-configuration", "ConfigurationApply one-general-1-configuration",
		},
		replaced(done),
	)
	w.requireRunning(4)
	w.requireMembers(3)
	w.up(s.yaml(t), optup.Refresh(), optup.ExpectNoChanges())

	// A roll back to a snapshot, like a restored backup, gives the machine a new generation; a preview shows what follows.
	worker, _ := w.lab.Data.VM(w.machines()["one-general-1"])
	w.do(w.lab.Data.Stop(labRoot, worker.Host, worker.ID))
	require.NoError(t, w.lab.Data.SetConfig(labRoot, worker.Host, worker.ID, datacentre.Config{"vmgenid": "1"}))
	w.do(w.lab.Data.Start(labRoot, worker.Host, worker.ID))
	require.Eventually(t, func() bool { return w.stage("one-general-1") == "running" }, within, 100*time.Millisecond)

	again := []string{"Command one-healthy", "ConfigurationApply one-general-1-configuration"}
	_, err = w.preview(s.yaml(t), optpreview.ExpectNoChanges())
	require.Error(t, err)

	done = w.up(s.yaml(t))
	assert.Equal(t, again, replaced(done))
	assert.Empty(t, vms(done.named("update")))

	// A machine that was moved is the same machine.
	target := map[string]string{"pve1": "pve2", "pve2": "pve1"}[worker.Host]
	w.do(
		w.lab.Data.Migrate(
			labRoot, worker.Host, worker.ID, datacentre.Config{"target": target, "online": "1", "with-local-disks": "1"},
		),
	)
	w.up(s.yaml(t), optup.Refresh(), optup.ExpectNoChanges())
	w.requireRunning(4)
}

// TestAClusterThatLostItsControlPlanes starts again only where the stack file says so, and once for each time that it
// says so: nothing of it is left but the workers, whose kubelets register their nodes when they start.
func TestAClusterThatLostItsControlPlanes(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	w.gateWithin("60s")

	s := stack{Network: w.network, Clusters: []cluster{one(1, 1)}}
	w.up(s.yaml(t))

	lose := func() {
		vm, _ := w.lab.Data.VM(w.machines()["one-cp-1"])
		w.remove(vm.Host, vm.ID)
	}
	refused := func(why string) {
		said := w.since(func() {
			_, err := w.tryUp(t.Context(), s.yaml(t), optup.Refresh())
			require.Error(t, err)
		})
		assert.Contains(t, said, "none of its control planes (one-cp-1) has data of etcd")
		assert.Contains(t, said, why)
		w.requireMembers(0)
	}

	lose()
	refused("such as the day: set one")
	refused("such as the day: set one")

	s.Clusters[0].BootstrapEmpty = "first"
	// The gate passes where the worker has restarted by itself, as it does without a CNI after a while.
	if _, err := w.tryUp(t.Context(), s.yaml(t), optup.Refresh()); err != nil {
		assert.Contains(t, w.said(), "one-general-1: node: is not registered")
	}

	w.requireMembers(1)

	worker, _ := w.lab.Data.VM(w.machines()["one-general-1"])
	w.do(w.lab.Data.Reset(labRoot, worker.Host, worker.ID))
	w.up(s.yaml(t), optup.Refresh())
	w.requireRunning(2)
	w.up(s.yaml(t), optup.Refresh(), optup.ExpectNoChanges())

	lose()
	refused(`"first" was used for that already: set another one`)
}

// replaced are the resources that a run replaced: the last that is heard of one is that its former self is deleted.
func replaced(done steps) []string { return done.named("delete-replaced") }

// TestAnUpAfterOneThatFailed never says that all is done while it is not: the state has what was asked for. What a user
// of the lab calls reads the machines by itself.
func TestAnUpAfterOneThatFailed(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	s := stack{Network: w.network, Clusters: []cluster{one(1, 1)}}
	s.Clusters[0].WorkerMemory = 2048
	w.up(s.yaml(t))

	worker, _ := w.lab.Data.VM(w.machines()["one-general-1"])
	s.Clusters[0].WorkerMemory = 3072
	clear := fault(
		func(n spec.Node) datacentre.Fault { return datacentre.Fault{Lock: "backup", VMID: n.VMID} },
	)(w, &s, newestWorker(w, s))

	e := w.engine(s.yaml(t))
	defer e.Close()

	require.Error(t, e.Resume(t.Context()))
	clear()

	said := w.fails(s.yaml(t))
	assert.Contains(t, said, "one-general-1 (VM 3000 on host "+worker.Host+") is not as planned: memory 2048 → 3072 MiB.")
	assert.Contains(t, said, "`pulumi up --refresh` fixes it")

	require.NoError(t, e.Resume(t.Context()), w.said())

	worker, _ = w.lab.Data.VM(worker.ID)
	assert.Equal(t, "3072", worker.Config["memory"])
	assert.Contains(t, w.said(), "The last up failed")

	w.do(w.lab.Data.Stop(labRoot, worker.Host, worker.ID))

	_, err := w.preview(s.yaml(t))
	require.NoError(t, err)
	assert.Contains(t, w.said(), "is stopped: `pulumi up --refresh` starts it")
	assert.Contains(t, w.fails(s.yaml(t)), "is not as planned: it is stopped.")
	w.up(s.yaml(t), optup.Refresh())
	w.requireRunning(2)
	w.up(s.yaml(t), optup.ExpectNoChanges())
}

// TestAChangeWhoseRestartFailed is made by the next run, although the configuration has the change already, so that a
// refresh finds nothing to do.
func TestAChangeWhoseRestartFailed(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	s := stack{Network: w.network, Clusters: []cluster{one(1, 2)}}
	s.Clusters[0].WorkerMemory = 2048
	w.up(s.yaml(t))

	worker, _ := w.lab.Data.VM(w.machines()["one-general-1"])
	s.Clusters[0].WorkerMemory = 3072
	clear := fault(always(datacentre.Fault{
		Path: "/qemu/3000/status/reboot$", Method: "POST", Status: 500, Message: "VM is paused - cannot shutdown",
	}))(w, &s, newestWorker(w, s))

	said := w.fails(s.yaml(t))
	assert.Contains(t, said, "VM is paused - cannot shutdown")
	assert.Contains(t, said, "What to do: VM 3000 is paused: `qm status 3000 --verbose` on "+worker.Host)

	_, err := w.tryUp(t.Context(), s.yaml(t), optup.Refresh())
	require.Error(t, err)
	assert.Contains(t, w.said(), "one-general-1 (VM 3000 on host "+worker.Host+") is not as planned: memory 2048 → 3072 MiB. "+
		"Its configuration has it, and its restart failed: Proxmox answers 500 VM is paused - cannot shutdown")
	clear()

	const restarts = "one-general-1 (VM 3000 on host %s) is restarted to finish an earlier update: memory 2048 → 3072 MiB"

	_, err = w.preview(s.yaml(t))
	require.NoError(t, err)
	assert.Contains(t, w.said(), fmt.Sprintf(restarts, worker.Host))

	before := w.tasksOf(worker.ID)

	w.up(s.yaml(t))
	assert.Equal(t, append(before, "qmreboot"), w.tasksOf(worker.ID))
	w.requireRunning(3)
	w.up(s.yaml(t), optup.Refresh(), optup.ExpectNoChanges())
}

// TestAReplacedMachineIsClonedOnItsHost: a running machine never follows its template, for which changes of clone are
// ignored; the engine takes the program's inputs for a replacement nevertheless, and so does one that is asked for.
func TestAReplacedMachineIsClonedOnItsHost(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	s := stack{Network: w.network, Clusters: []cluster{one(1, 1)}}
	on := func(host string, vmid int) string {
		s.Clusters[0].Pins = fmt.Sprintf(`nodes: {"1": {host: %s, vmid: %d}}`, host, vmid)

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
	done = w.up(file, optup.Replace([]string{w.urn(file, "one-general-1-vm")}))
	assert.Equal(t, "create-replacement", done["VirtualMachine one-general-1-vm"])
	clonedOn("pve1", 3050)
}
