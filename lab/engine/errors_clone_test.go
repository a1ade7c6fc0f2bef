package engine_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/permissions"
	"talos-proxmox/internal/spec"
	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/server"
)

// TestErrorsOfClones provokes everything that Proxmox refuses while a machine is cloned and first started.
func TestErrorsOfClones(t *testing.T) {
	t.Parallel()

	w := openWorld(t, server.Options{Speed: testSpeed, Hosts: 2, Storages: specialStorages})
	s := new(w.stack(1, 0))
	s.Clusters[0].WorkerMemory = 2048
	s.Clusters[0].ControlPlaneHost, s.Clusters[0].WorkerYAML = "pve2", onlyPve1

	// A clone's storage is looked up before the privileges on it; the provider does not show Proxmox' message.
	storages := storageRows("the requested resource does not exist",
		"its datastore nowhere (`pvesm status` lists those that there are; bring it back, or choose another")

	runFailures(t, w, s, slices.Concat(storages, refusedClones(t, w), brokenClones()))
}

// refusedClones are refusals of the call, and of the task before it copies anything.
func refusedClones(t *testing.T, w *world) []failure {
	t.Helper()

	connection, err := w.lab.Connection()
	require.NoError(t, err)

	_, secret, _ := strings.Cut(connection.APIToken, "=")
	grant := func() { require.NoError(t, server.GrantProgram(w.lab.Data, secret)) }

	return []failure{
		{
			name: "VMID used", cause: foreignVM,
			message: "unable to create VM {vmid}: config file already exists",
			advice:  "{name} (VM {vmid} on host {host}): create failed. What to do: VM {vmid} is foreign on pve1, and no stack made it: leave it, and set a free VMID for {name} alone, nodes.<n>.vmid of its pool",
		},
		{
			name: "storage full", cause: faultCause(forAnyNode(datacentre.Fault{Full: "local-lvm"})),
			message: "failed to complete with exit code: clone failed: lvcreate 'pve/vm-{vmid}-disk-0' error: Cannot create new thin volume, free space in thin pool pve/data reached threshold.",
			advice:  "the storage on {host} is full",
		},
		{
			name: "template locked",
			cause: faultCause(func(n spec.Node) datacentre.Fault {
				return datacentre.Fault{Lock: "backup", VMID: n.Template.VMID}
			}),
			message: "received an HTTP 500 response - Reason: VM is locked (backup)",
			advice:  "wait for the end of the backup of VM {template}; if no such task runs any more, `qm unlock {template}` on {host}",
		},
		{
			name: "permission", cause: func(w *world, _ *stack, _ spec.Node) func() {
				var rest []string

				for _, privilege := range permissions.Roles()[0].Privileges() {
					if privilege != "VM.Clone" {
						rest = append(rest, privilege)
					}
				}

				require.NoError(t, w.lab.Data.PutRole(permissions.Roles()[0].ID, rest...))

				return grant
			},
			message: "received an HTTP 403 response - Reason: Permission check failed (/vms/{template}, VM.Clone)",
			advice:  "give the program's role this privilege on this path (/vms/{template}, VM.Clone)",
		},
		{
			name: "credentials", cause: func(w *world, _ *stack, _ spec.Node) func() {
				require.NoError(t, server.GrantProgram(w.lab.Data, "another"))

				return grant
			},
			message: "received an HTTP 401 response - Reason: Authentication failed!", advice: "check proxmoxve:apiToken",
		},
		{
			name: "no quorum", cause: faultCause(forAnyNode(datacentre.Fault{NoQuorum: true})),
			message: "received an HTTP 500 response - Reason: cluster not ready - no quorum?",
			advice:  "`pvecm status` on a host shows who is missing",
		},
	}
}

// brokenClones are failures on the way, and what is missing.
func brokenClones() []failure {
	return []failure{
		{
			name: "a start that fails",
			cause: faultCause(func(n spec.Node) datacentre.Fault {
				return datacentre.Fault{Task: "qmstart", VMID: n.VMID, Message: "start failed: QEMU exited with code 1"}
			}),
			message: "failed to complete with exit code: start failed: QEMU exited with code 1",
			advice:  "the task's log on {host} says why", refresh: true,
		},
		{
			name:    "a connection that breaks off before",
			cause:   faultCause(forAnyNode(datacentre.Fault{Method: "POST", Path: "/clone$", Reset: true})),
			message: "failed to perform HTTP POST request (path: nodes/{host}/qemu/{template}/clone) - Reason: ",
			advice:  "may have been done or not; `qm list` on {host} shows it",
		},
		{
			name: "a connection that breaks off after", cause: func(w *world, s *stack, n spec.Node) func() {
				removeFault := w.addFault(datacentre.Fault{Method: "POST", Path: "/clone$", Reset: true, After: true, Times: 1})

				return func() { removeFault(); w.removeVM(n.VMID) }
			},
			message: "unable to create VM {vmid}: config file already exists",
			advice:  "an interrupted run of this stack left VM {vmid} on {host}: `talos-proxmox recover lab --vmid {vmid}` removes it",
		},
		{
			name: "template missing", cause: func(w *world, s *stack, n spec.Node) func() {
				w.removeVM(n.Template.VMID)

				return func() { s.Template = 950 }
			},
			message: "unable to find configuration file for VM {template} on node '{host}'",
			advice: "{host} lacks its template, VM {template} (`qm config {template}`; if it was removed behind Pulumi's back, restore it, or choose " +
				"another talos-proxmox:templates.<class>.firstVmid, under which it is rebuilt: running machines stay",
		},
		{
			name: "node offline", cause: faultCause(forAnyNode(datacentre.Fault{Offline: true, Host: "pve2"})),
			change: func(s *stack) {
				addWorker(s)
				c := &s.Clusters[0]
				c.WorkerYAML = fmt.Sprintf("%s\n          nodes: {\"%d\": {host: pve2}}", onlyPve1, c.Workers)
			},
			message: "No route to host", advice: "{host} cannot be reached",
		},
	}
}
