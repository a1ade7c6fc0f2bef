package engine_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/talos"
	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/server"
	"talos-proxmox/stacks"
)

// TestErrorsOfCreations provokes what Proxmox refuses if machines boot the ISO: they are created, not cloned.
func TestErrorsOfCreations(t *testing.T) {
	t.Parallel()

	w := openWorld(t, server.Options{Speed: testSpeed, Hosts: 2, Storages: specialStorages})
	s := &stack{Network: w.network, Source: "iso", Clusters: []cluster{clusterOne(1, 0)}}
	s.Clusters[0].WorkerMemory = 2048
	s.Clusters[0].WorkerYAML = onlyPve1

	// The program's roles are granted on the stack's own datastores.
	storages := storageRows("Permission check failed (/storage/nowhere, Datastore.AllocateSpace)",
		"give the program's role this privilege on this path (/storage/nowhere, Datastore.AllocateSpace)")

	runFailures(t, w, s, append(storages, []failure{
		{
			name: "VMID used", cause: foreignVM,
			message: "unable to create VM {vmid} - VM {vmid} already exists on node 'pve1'",
			advice:  "VM {vmid} is foreign on pve1, and no stack made it",
		},
		{
			name: "storage full", cause: faultCause(forAnyNode(datacentre.Fault{Full: "local-lvm"})),
			message: "unable to create VM {vmid} - lvcreate 'pve/vm-{vmid}-disk-0' error: Cannot create new thin volume, free space in thin pool pve/data reached threshold.",
			advice:  "the storage on {host} is full",
		},
		{
			name: "no quorum", cause: faultCause(forAnyNode(datacentre.Fault{NoQuorum: true})),
			message: "cluster not ready - no quorum?", advice: "the cluster has no quorum",
		},
		{
			name: "a creation with warnings", cause: func(w *world, s *stack, n spec.Node) func() {
				removeFault := w.addFault(datacentre.Fault{Task: "qmcreate", Warnings: 1})

				return func() { removeFault(); w.removeVM(n.VMID) }
			},
			message: "failed to complete with exit code: WARNINGS: 1", advice: "`talos-proxmox recover lab --vmid {vmid}` removes it",
		},
	}...))
}

// TestToleratedTaskFailures has failures of Proxmox' tasks that a run tolerates: warnings of clones and starts, and an
// unmanaged file of the image's name, which a killed run may have left.
func TestToleratedTaskFailures(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	s := w.stack(1, 0)

	for _, task := range []string{"qmclone", "qmstart"} {
		w.addFault(datacentre.Fault{Task: task, VMID: map[string]int{"qmstart": 2000}[task], Warnings: 1})
	}

	n := lastWorker(w, s)
	image := "/var/lib/vz/template/iso/" + talos.ImageFile(stacks.ImageOf(n.Template), "talos-proxmox/lab")
	host, _ := w.lab.Data.Host(n.Host)
	require.NoError(t, os.WriteFile(filepath.Join(host.Root, image), []byte("something else"), 0o600))

	w.up(s.yaml(t))
	w.requirePlanned(s, "no errors")
	assert.True(t, w.hasFinishedTask("download", "refusing to override existing file '"+image+"'"))
	assert.True(t, w.hasFinishedTask("qmclone", "WARNINGS: 1"))
	assert.True(t, w.hasFinishedTask("qmstart", "WARNINGS: 1"))

	// The provider does not read a machine that it started with warnings: the next update does, and nothing else; the
	// health gate follows it.
	done := w.up(s.yaml(t))
	assert.Equal(t, steps{"VirtualMachine " + n.Name + "-vm": "update", "Command one-healthy": "update"}, done)
	assert.False(t, slices.ContainsFunc(w.lab.Data.Tasks(), func(task datacentre.Task) bool {
		return slices.Contains([]string{"qmreboot", "qmshutdown", "qmstop"}, task.Type)
	}))

	w.up(s.yaml(t), optup.ExpectNoChanges())
	w.up(s.yaml(t), optup.Refresh(), optup.ExpectNoChanges())
}

func (w *world) hasFinishedTask(kind, status string) bool {
	return slices.ContainsFunc(
		w.lab.Data.Tasks(), func(task datacentre.Task) bool { return task.Type == kind && task.ExitStatus == status },
	)
}
