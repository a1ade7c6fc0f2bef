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

// TestErrorsOfCreations meets what Proxmox refuses where machines boot the ISO: they are created, not cloned.
func TestErrorsOfCreations(t *testing.T) {
	t.Parallel()

	w := openWorld(t, server.Options{Speed: testSpeed, Hosts: 2, Storages: oddStorages})
	s := &stack{Network: w.network, Source: "iso", Clusters: []cluster{one(1, 0)}}
	s.Clusters[0].WorkerMemory = 2048
	s.Clusters[0].Pins = onlyPve1

	errorsOf(t, w, s, append(storageRows(), []failure{
		{
			row: "VMID used", cause: foreign,
			says:   "unable to create VM {vmid} - VM {vmid} already exists on node 'pve1'",
			advice: "VM {vmid} is foreign on pve1, and no stack made it",
		},
		{
			row: "storage full", cause: fault(always(datacentre.Fault{Full: "local-lvm"})),
			says:   "unable to create VM {vmid} - lvcreate 'pve/vm-{vmid}-disk-0' error: Cannot create new thin volume, free space in thin pool pve/data reached threshold.",
			advice: "the storage on {host} is full",
		},
		{
			row: "no quorum", cause: fault(always(datacentre.Fault{NoQuorum: true})),
			says: "cluster not ready - no quorum?", advice: "the cluster has no quorum",
		},
		{
			row: "a creation with warnings", cause: func(w *world, s *stack, n spec.Node) func() {
				clear := fault(always(datacentre.Fault{Task: "qmcreate", Warnings: 1}))(w, s, n)

				return func() { clear(); w.remove(n.Host, n.VMID) }
			},
			says: "failed to complete with exit code: WARNINGS: 1", advice: "`talos-proxmox recover lab --vmid {vmid}` removes it",
		},
	}...))
}

// TestRefusalsThatAreNoErrors are answers of Proxmox that a run gets over: warnings of clones and starts, and a file of
// the image's name that no one manages, which a killed run may have left.
func TestRefusalsThatAreNoErrors(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	s := stack{Network: w.network, Clusters: []cluster{one(1, 0)}}

	for _, task := range []string{"qmclone", "qmstart"} {
		_, err := w.lab.Data.AddFault(datacentre.Fault{Task: task, VMID: map[string]int{"qmstart": 2000}[task], Warnings: 1})
		require.NoError(t, err)
	}

	n := newestWorker(w, s)
	image := "/var/lib/vz/template/iso/" + talos.ImageFile(stacks.ImageOf(n.Template), "talos-proxmox/lab")
	host, _ := w.lab.Data.Host(n.Host)
	require.NoError(t, os.WriteFile(filepath.Join(host.Root, image), []byte("something else"), 0o600))

	w.up(s.yaml(t))
	w.requirePlanned(s, "no errors")
	assert.True(t, w.taskEnded("download", "refusing to override existing file '"+image+"'"))
	assert.True(t, w.taskEnded("qmclone", "WARNINGS: 1"))
	assert.True(t, w.taskEnded("qmstart", "WARNINGS: 1"))

	// The provider does not look at a machine that it started with warnings: its next update does, and only that;
	// the health gate follows it.
	done := w.up(s.yaml(t))
	assert.Equal(t, steps{"VirtualMachine " + n.Name + "-vm": "update", "Command one-healthy": "update"}, done)
	assert.False(t, slices.ContainsFunc(w.lab.Data.Tasks(), func(task datacentre.Task) bool {
		return slices.Contains([]string{"qmreboot", "qmshutdown", "qmstop"}, task.Type)
	}))

	w.up(s.yaml(t), optup.ExpectNoChanges())
	w.up(s.yaml(t), optup.Refresh(), optup.ExpectNoChanges())
}

func (w *world) taskEnded(kind, status string) bool {
	return slices.ContainsFunc(
		w.lab.Data.Tasks(), func(task datacentre.Task) bool { return task.Type == kind && task.ExitStatus == status },
	)
}
