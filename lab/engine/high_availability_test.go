package engine_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/server"
)

// openSharedWorld opens a lab of three hosts that share the datastore ceph.
func openSharedWorld(t testing.TB) *world {
	t.Helper()

	return openWorld(t, server.Options{
		Speed: testSpeed, Hosts: 3,
		Storages: func(string) []datacentre.StorageOptions {
			return []datacentre.StorageOptions{{
				Name: "ceph", Type: "rbd", Content: []string{"images"}, SizeBytes: 1000 * datacentre.GiB, Shared: true,
			}}
		},
	})
}

// sharedStack returns a stack file of three hosts, with the same keys for control planes and workers.
func (w *world) sharedStack(t testing.TB, controlPlanes, workers int, keys, ofWorkers string) string {
	t.Helper()

	s := w.stack(controlPlanes, workers)
	s.Clusters[0].WorkerYAML = keys + "\n          " + ofWorkers
	file := s.yaml(t)
	file = strings.Replace(file, "  talos-proxmox:templates:",
		fmt.Sprintf("    - {name: pve3, address: %s.0.13}\n  talos-proxmox:templates:", w.network), 1)

	return strings.Replace(file, "controlPlane: {", "controlPlane: {"+keys+", ", 1)
}

// haOf returns the VMIDs of a rule's machines, or of all with high availability.
func (w *world) haOf(rule string) []string {
	if rule == "" {
		var ids []string
		for id := range w.lab.Data.Records(datacentre.HAResources) {
			ids = append(ids, strings.TrimPrefix(id, "vm:"))
		}

		slices.Sort(ids)

		return ids
	}

	record, _ := w.lab.Data.Record(datacentre.HARules, rule)
	ids := strings.Split(strings.ReplaceAll(record["resources"], "vm:", ""), ",")
	slices.Sort(ids)

	return ids
}

// apartRule returns the name of the only rule that keeps machines apart; empty = there is none.
func (w *world) apartRule() string {
	for name, rule := range w.lab.Data.Records(datacentre.HARules) {
		if rule["affinity"] == "negative" {
			return name
		}
	}

	return ""
}

// TestHighAvailability: Proxmox starts the machines of a dead host on others, as far as rules allow it, and they stay
// there. Nodes leave and are replaced although Proxmox starts every machine that is switched off.
func TestHighAvailability(t *testing.T) {
	t.Parallel()

	w := openSharedWorld(t)
	file := func(controlPlanes, workers int) string {
		return w.sharedStack(t, controlPlanes, workers, "ha: {maxRestart: 2}", "hosts: [pve1, pve2]")
	}

	_, err := w.preview(file(3, 2))
	require.Error(t, err)
	assert.Contains(t, w.output(), `"local-lvm" is of pve1 alone, and one-cp-1 has ha: another host could not start it`)

	onCeph := func(controlPlanes, workers int) string {
		return strings.ReplaceAll(file(controlPlanes, workers), "datastore: local-lvm", "datastore: ceph")
	}

	w.killedUp(onCeph(3, 2), func(w *world) bool { return len(w.haOf("")) == 2 }, true)
	w.recover()
	w.up(onCeph(3, 2), optup.Refresh())
	assert.Equal(t, []string{"2000", "2001", "2002", "3000", "3001"}, w.haOf(""))
	assert.Equal(t, []string{"2000", "2001", "2002"}, w.haOf(w.apartRule()))

	hosts, found := w.lab.Data.Record(datacentre.HARules, "talos-vm-3001")
	require.True(t, found)
	assert.Equal(t, "pve1,pve2 1", hosts["nodes"]+" "+hosts["strict"])
	w.up(onCeph(3, 2), optup.Refresh(), optup.ExpectNoChanges())

	// Somebody shuts a machine down in the web interface: it stays off until the next up.
	off := w.vm("one-general-2")
	w.requireTask(w.lab.Data.Shutdown(labRoot, off.Host, off.ID, nil))
	require.Eventually(t, func() bool { return !w.vm(off.Name).Running }, within, 50*time.Millisecond)
	w.up(onCeph(3, 2), optup.Refresh())
	require.Eventually(t, func() bool { return w.vm(off.Name).Running }, within, 50*time.Millisecond)

	// A host dies, and not the one that the program asks: its worker moves to the other of its hosts; its control plane
	// would share a host, and waits.
	worker := w.vm("one-general-1")
	if worker.Host == "pve1" {
		worker = w.vm("one-general-2")
	}

	other := map[string]string{"pve1": "pve2", "pve2": "pve1"}[worker.Host]
	controlPlane := slices.IndexFunc([]string{"one-cp-1", "one-cp-2", "one-cp-3"}, func(name string) bool {
		return w.vm(name).Host == worker.Host
	})
	require.GreaterOrEqual(t, controlPlane, 0)

	powerBack := w.addFault(datacentre.Fault{NoPower: true, Host: worker.Host})

	require.Eventually(t, func() bool {
		vm := w.vm(worker.Name)

		return vm.Running && vm.Host == other
	}, within, 50*time.Millisecond)

	waiting := w.vm(fmt.Sprintf("one-cp-%d", controlPlane+1))
	assert.Equal(t, worker.Host, waiting.Host)

	report, _ := w.clusterStatus()
	moved := report.Placement.Of(worker.Name)
	assert.Equal(t, []string{other, worker.Host}, []string{moved.Host, moved.PlannedHost})
	assert.Contains(t, strings.Join(report.Care.Lines(), "\n"), worker.Host+": the host is offline, with "+waiting.Name)
	assert.Contains(t, strings.Join(report.Care.Lines(), "\n"), "; Proxmox' high availability: "+waiting.Name)

	powerBack()
	require.Eventually(t, func() bool { return w.vm(waiting.Name).Running }, within, 50*time.Millisecond)

	done := w.up(onCeph(3, 2), optup.Refresh())
	assert.Empty(t, slices.Concat(vms(done.withOp("update")), vms(done.withOp("delete-replaced"))))
	assert.Equal(t, other, w.placement(worker.Name))
	w.up(onCeph(3, 2), optup.Refresh(), optup.ExpectNoChanges())

	// Machines that are switched off are started again, so that a node that leaves must be forgotten first.
	w.up(onCeph(3, 2), optup.Replace([]string{w.urnOf(onCeph(3, 2), "one-cp-3-vm")}))
	assert.Equal(t, []string{"2000", "2001", "2002"}, w.haOf(w.apartRule()))
	w.requireMembers(3)

	w.up(onCeph(1, 1))
	assert.Equal(t, []string{"2000", "3000"}, w.haOf(""))
	assert.Empty(t, w.apartRule())
	w.requireMembers(1)

	w.up(strings.ReplaceAll(onCeph(1, 1), "ha: {maxRestart: 2}", "onBoot: true"))
	assert.Empty(t, w.haOf(""))
	assert.Empty(t, w.lab.Data.Records(datacentre.HARules))

	w.up(onCeph(1, 1))
	w.destroy(onCeph(1, 1))
	assert.Empty(t, w.machines())
	assert.Empty(t, w.haOf(""))
}
