package engine_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/planguard"
	"talos-proxmox/lab/datacentre"
)

// takeVMID deletes a machine of the stack, and creates a colleague's VM with its VMID, which runs.
func (w *world) takeVMID(name string) (theirs datacentre.VM) {
	w.t.Helper()

	ours := w.vm(name)
	w.removeVM(ours.ID)
	w.requireTask(w.lab.Data.CreateVM(labRoot, ours.Host, ours.ID, datacentre.Config{
		"name": "mail-server", "memory": "3072", "cores": "1", "scsi0": "local-lvm:32", "net0": "virtio,bridge=vmbr0",
		"description": "mail of the company", "tags": "mail",
	}))
	w.startVM(ours.ID)

	theirs, _ = w.lab.Data.VM(ours.ID)

	return theirs
}

// requireUntouched checks that a VM and its disks are as they were, and that no task was started on it.
func (w *world) requireUntouched(theirs datacentre.VM, tasks []string) {
	w.t.Helper()

	now, exists := w.lab.Data.VM(theirs.ID)
	require.True(w.t, exists, "VM %d %s was deleted:\n%s", theirs.ID, theirs.Name, w.output())
	assert.Equal(w.t, theirs.Config, now.Config)
	assert.True(w.t, now.Running)
	assert.Equal(w.t, tasks, w.tasksOf(theirs.ID))

	disk, _, _ := strings.Cut(theirs.Config["scsi0"], ",")
	volumes := w.lab.Data.Volumes(theirs.Host, "local-lvm", "images")
	assert.True(w.t, slices.ContainsFunc(volumes, func(v datacentre.Volume) bool { return v.ID == disk }), disk)
}

// TestAVMIDThatSomebodyElseTook: a worker is deleted in the web page, and a colleague's VM gets its VMID. No command
// changes or deletes it; `talos-proxmox recover` removes the worker from the state, and it is created beside the other.
func TestAVMIDThatSomebodyElseTook(t *testing.T) {
	t.Parallel()

	w, s := upOne(t, 1, 2)
	theirs := w.takeVMID("one-general-1")
	tasks := w.tasksOf(theirs.ID)

	foreign := "one-general-1: its VMID " + strconv.Itoa(theirs.ID) + " now belongs to VM " + strconv.Itoa(theirs.ID) +
		" mail-server on host " + theirs.Host + ", and no stack made it"
	refused := func(run func() error) {
		t.Helper()

		output := w.outputOf(func() { require.Error(t, run()) })
		assert.Contains(t, output, foreign)
		assert.Contains(t, output, "`talos-proxmox recover lab` removes one-general-1 from the state")
		assert.NotContains(t, output, "is stopped")
		w.requireUntouched(theirs, tasks)
	}
	up := func(options ...optup.Option) func() error {
		return func() error {
			_, err := w.tryUp(t.Context(), s.yaml(t), options...)

			return err
		}
	}

	refused(func() error {
		_, err := w.preview(s.yaml(t))

		return err
	})
	refused(up())
	refused(up(optup.Target([]string{w.urnOf(s.yaml(t), "one-general-1-vm")})))

	// The refresh reads the colleague's VM into the state.
	refused(up(optup.Refresh()))
	require.Contains(t, w.state(s.yaml(t)), "mail-server")
	refused(up())

	refused(func() error {
		e := w.engine(s.yaml(t))
		defer e.Close()

		_, err := e.Destroy(t.Context())

		return err
	})

	s.Clusters[0].Workers = 0 // both leave the plan

	refused(up())

	s.Clusters[0].Workers = 2

	output := w.recover()
	assert.Contains(t, output, "VM "+strconv.Itoa(theirs.ID)+" mail-server on "+theirs.Host+" is left alone, and not one-general-1 any more")
	w.requireUntouched(theirs, tasks)

	s.Clusters[0].WorkerYAML = `nodes: {"1": {vmid: 3050}}`
	done := w.up(s.yaml(t))
	assert.Equal(t, []string{"VirtualMachine one-general-1-vm"}, vms(done.withOp("create")))
	w.up(s.yaml(t), optup.Refresh(), optup.ExpectNoChanges())
	w.requireUntouched(theirs, tasks)

	w.destroy(s.yaml(t))
	w.requireUntouched(theirs, tasks)
	assert.Equal(t, map[string]int{"mail-server": theirs.ID}, w.machines())
}

// TestVolumesThatNobodyNamed attaches a disk to a worker by hand: a plan that deletes the worker names its volume, and
// the guard refuses it.
func TestVolumesThatNobodyNamed(t *testing.T) {
	t.Parallel()

	w, s := upOne(t, 1, 2)
	worker := w.vm("one-general-2")
	require.NoError(t, w.lab.Data.SetConfig(labRoot, worker.Host, worker.ID, datacentre.Config{"scsi5": "local-lvm:7"}))

	worker = w.vm("one-general-2")
	volume, _, _ := strings.Cut(worker.Config["scsi5"], ",")

	assert.NotContains(t, w.previewOutput(s.yaml(t)), volume, "the worker stays")

	s.Clusters[0].Workers = 1
	parsed, _ := w.reviewed(s.yaml(t))
	findings, _ := planguard.Check(parsed, nil)
	requireFindings(t, "a worker goes", []string{
		"delete one-general-2-vm: volumes that the stack file does not name are deleted with it: " + volume + ".",
	}, findings)
}

// TestARolledBackControlPlane rolls a control plane of three back, which gives it a new generation and keeps its
// creation id: runs refuse its old etcd, and a replacement joins empty while the old one runs.
func TestARolledBackControlPlane(t *testing.T) {
	t.Parallel()

	w, s := upOne(t, 3, 0)
	before := w.vm("one-cp-2")
	w.stopVM(before.ID)
	require.NoError(t, w.lab.Data.SetConfig(labRoot, before.Host, before.ID, datacentre.Config{"vmgenid": "1"}))
	w.startVM(before.ID)
	require.Eventually(t, func() bool {
		return w.machineStatus("one-cp-2").Stage == "running"
	}, within, 100*time.Millisecond)

	const refusal = "and the cluster can lose data when it votes: replace it, so that it leaves and joins empty: " +
		"`pulumi up --replace '**::one-cp-2-vm'`"

	_, err := w.preview(s.yaml(t))
	require.Error(t, err)
	assert.Contains(t, w.output(), refusal)
	assert.Contains(t, w.failedUp(s.yaml(t)), refusal)
	assert.Contains(t, w.failedUp(s.yaml(t)), refusal, "the refusal is not forgotten")

	done := w.up(s.yaml(t), optup.Replace([]string{"**::one-cp-2-vm"}))
	assert.Equal(t, "create-replacement", done["VirtualMachine one-cp-2-vm"])
	assert.NotEqual(t, before.Config["smbios1"], w.vm("one-cp-2").Config["smbios1"])
	w.requireMembers(3)
	w.up(s.yaml(t), optup.ExpectNoChanges())
}
