package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/spec"
	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/engine"
)

// removal is what is seen instead of advice where a machine is removed: this program, inline in the test, has ended by
// then. One that pulumi runs as its own process waits for the engine, and advises.
const removal = "VirtualMachine::{name}-vm: 1 error occurred:\n    \t* "

// TestErrorsOfChanges meets what Proxmox refuses to machines that exist, in a session with a password.
func TestErrorsOfChanges(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	w.lab.Data.Put(datacentre.Users, labRoot, datacentre.Config{"password": "a password"})
	w.configure = func(c *engine.Config) {
		delete(c.Secrets, "proxmoxve:apiToken")
		c.Values["proxmoxve:username"] = labRoot
		c.Secrets["proxmoxve:password"] = "a password"
	}

	s := &stack{Network: w.network, Clusters: []cluster{one(1, 3)}}
	s.Clusters[0].WorkerMemory = 2048

	lock := fault(func(n spec.Node) datacentre.Fault { return datacentre.Fault{Lock: "backup", VMID: n.VMID} })
	more := func(s *stack) { s.Clusters[0].WorkerMemory += 512 }

	errorsOf(t, w, s, []failure{
		{
			row: "locked, for a change", cause: lock, asked: more,
			says:    "received an HTTP 500 response - Reason: VM is locked (backup)",
			advice:  "{name} (VM {vmid} on host {host}): update failed. What to do: wait for the end of the backup of VM {vmid}",
			refresh: true,
		},
		{
			row: "locked, for a larger disk", cause: lock, asked: func(s *stack) { s.Clusters[0].WorkerDisk = 30 },
			says: "VM is locked (backup)", advice: "`qm unlock {vmid}` on {host}", refresh: true,
		},
		{
			row:     "no quorum, for a change",
			cause:   fault(always(datacentre.Fault{NoQuorum: true})),
			asked:   pinned(`nodes: {"1": {memoryMiB: 3072}}`),
			subject: firstWorker,
			says:    "/etc/pve/nodes/{host}/qemu-server/{vmid}.conf.tmp.", advice: "the cluster has no quorum", refresh: true,
		},
		{
			row: "shrink", cause: func(_ *world, s *stack, _ spec.Node) func() {
				pinned(`nodes: {"1": {memoryMiB: 3072, diskGiB: 25}}`)(s)

				return func() { pinned(`nodes: {"1": {memoryMiB: 3072}}`)(s) }
			},
			asked: func(*stack) {}, subject: firstWorker,
			says: "25 is less than the 30 GiB that {name} has at scsi0", advice: "disks cannot shrink; use at least 30",
		},
		{
			row: "protected", asked: oneWorkerLess, subject: leaving,
			cause: func(w *world, _ *stack, n spec.Node) func() {
				require.NoError(t, w.lab.Data.SetConfig(labRoot, n.Host, n.VMID, datacentre.Config{"protection": "1"}))

				return func() {
					require.NoError(t, w.lab.Data.SetConfig(labRoot, n.Host, n.VMID, datacentre.Config{"protection": "0"}))
				}
			},
			says:   "received an HTTP 500 response - Reason: can't remove VM {vmid} - protection mode enabled",
			advice: removal + "error deleting VM",
		},
		{
			row: "locked, for a removal", cause: lock, asked: oneWorkerLess, subject: leaving,
			says: "failed to complete with exit code: VM is locked (backup)", advice: removal + "error waiting for VM deletion",
		},
		{
			row: "a ticket that expires", subject: leaving,
			asked: func(s *stack) { // the last one
				oneWorkerLess(s)
				pinned("")(s)
			},
			cause: func(w *world, _ *stack, _ spec.Node) func() {
				known := len(w.lab.Data.Tasks())

				go func() {
					for t.Context().Err() == nil && len(w.lab.Data.Tasks()) == known {
						time.Sleep(time.Millisecond)
					}

					_, err := w.lab.Data.AddFault(datacentre.Fault{ExpireTickets: true})
					assert.NoError(t, err)
				}()

				return nil
			},
			says:   "received an HTTP 401 response - Reason: Authentication failed!",
			advice: removal + "error waiting for VM deletion", refresh: true, // Proxmox has deleted it all the same
		},
	})
}
