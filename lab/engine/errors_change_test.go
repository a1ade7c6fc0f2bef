package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/spec"
	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/engine"
)

// removalError is printed instead of advice if a machine's removal fails: this program, inline in the test, has ended
// by then. One that pulumi runs as its own process waits for the engine, and advises.
const removalError = "VirtualMachine::{name}-vm: 1 error occurred:\n    \t* "

// TestErrorsOfChanges provokes what Proxmox refuses to existing machines, in a session with a password.
func TestErrorsOfChanges(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	w.lab.Data.Put(datacentre.Users, labRoot, datacentre.Config{"password": "a password"})
	w.configure = func(c *engine.Config) {
		delete(c.Secrets, "proxmoxve:apiToken")
		c.Values["proxmoxve:username"] = labRoot
		c.Secrets["proxmoxve:password"] = "a password"
	}

	s := new(w.stack(1, 3))
	s.Clusters[0].WorkerMemory = 2048

	lock := faultCause(func(n spec.Node) datacentre.Fault { return datacentre.Fault{Lock: "backup", VMID: n.VMID} })
	more := func(s *stack) { s.Clusters[0].WorkerMemory += 512 }

	runFailures(t, w, s, []failure{
		{
			name: "locked, for a change", cause: lock, change: more,
			message: "received an HTTP 500 response - Reason: VM is locked (backup)",
			advice:  "{name} (VM {vmid} on host {host}): update failed. What to do: wait for the end of the backup of VM {vmid}",
			refresh: true,
		},
		{
			name: "locked, for a larger disk", cause: lock, change: func(s *stack) { s.Clusters[0].WorkerDisk = 30 },
			message: "VM is locked (backup)", advice: "`qm unlock {vmid}` on {host}", refresh: true,
		},
		{
			name:    "no quorum, for a change",
			cause:   faultCause(forAnyNode(datacentre.Fault{NoQuorum: true})),
			change:  setWorkerYAML(`nodes: {"1": {memoryMiB: 3072}}`),
			subject: firstWorker,
			message: "/etc/pve/nodes/{host}/qemu-server/{vmid}.conf.tmp.", advice: "the cluster has no quorum", refresh: true,
		},
		{
			name: "shrink", cause: func(_ *world, s *stack, _ spec.Node) func() {
				setWorkerYAML(`nodes: {"1": {memoryMiB: 3072, diskGiB: 25}}`)(s)

				return func() { setWorkerYAML(`nodes: {"1": {memoryMiB: 3072}}`)(s) }
			},
			change: func(*stack) {}, subject: firstWorker,
			message: "25 is less than the 30 GiB that {name} has at scsi0", advice: "disks cannot shrink; use at least 30",
		},
		{
			name: "protected", change: removeWorker, subject: removedWorker,
			cause: func(w *world, _ *stack, n spec.Node) func() {
				require.NoError(t, w.lab.Data.SetConfig(labRoot, n.Host, n.VMID, datacentre.Config{"protection": "1"}))

				return func() {
					require.NoError(t, w.lab.Data.SetConfig(labRoot, n.Host, n.VMID, datacentre.Config{"protection": "0"}))
				}
			},
			message: "received an HTTP 500 response - Reason: can't remove VM {vmid} - protection mode enabled",
			advice:  removalError + "error deleting VM",
		},
		{
			name: "locked, for a removal", cause: lock, change: removeWorker, subject: removedWorker,
			message: "failed to complete with exit code: VM is locked (backup)", advice: removalError + "error waiting for VM deletion",
		},
		{
			name: "a ticket that expires", subject: removedWorker,
			change: func(s *stack) { // the last one
				removeWorker(s)
				setWorkerYAML("")(s)
			},
			cause: func(w *world, _ *stack, _ spec.Node) func() {
				known := len(w.lab.Data.Tasks())

				go func() {
					for t.Context().Err() == nil && len(w.lab.Data.Tasks()) == known {
						time.Sleep(time.Millisecond)
					}

					w.addFault(datacentre.Fault{ExpireTickets: true})
				}()

				return nil
			},
			message: "received an HTTP 401 response - Reason: Authentication failed!",
			advice:  removalError + "error waiting for VM deletion", refresh: true, // Proxmox has deleted it all the same
		},
	})
}
