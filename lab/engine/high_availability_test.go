package engine_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optpreview"
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

	w.killedUp(onCeph(3, 2), func(w *world) bool { return len(w.haOf("")) > 0 }, true)
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

// TestHighAvailabilityOfOthers: what somebody changed in Proxmox' high availability is named and repaired, what
// somebody made before is taken over or named with what to do.
func TestHighAvailabilityOfOthers(t *testing.T) {
	t.Parallel()

	w := openSharedWorld(t)
	file := strings.ReplaceAll(w.sharedStack(t, 3, 1, "ha: {}", "hosts: [pve1, pve2]"), "datastore: local-lvm", "datastore: ceph")
	withoutHA := strings.ReplaceAll(file, "ha: {}", "onBoot: true")

	w.up(withoutHA)

	// Somebody has put a machine into high availability, with a rule.
	w.lab.Data.PutHAResource(3000, datacentre.Config{"max_restart": "7"})
	w.lab.Data.Put(datacentre.HARules, "mine", datacentre.Config{
		"type": "node-affinity", "resources": "vm:3000", "nodes": "pve3",
	})

	_, err := w.preview(withoutHA)
	require.NoError(t, err)
	assert.Contains(t, w.output(), "one-general-1 (VM 3000) is in Proxmox' high availability, which the stack file does not have")

	_, err = w.preview(file)
	require.Error(t, err)
	assert.Contains(t, w.output(), `the rule "mine" of Proxmox' high availability, which this stack did not make, says where it `+
		"runs as well (pve3); Proxmox allows one such rule: remove it: `ha-manager rules remove mine`, or remove hosts")
	assert.Contains(t, w.refusedUp(file), "ha-manager rules remove mine", "it would fail half-way")
	assert.Equal(t, []string{"3000"}, w.haOf(""))

	w.lab.Data.Delete(datacentre.HARules, "mine")
	w.up(file)

	taken, _ := w.lab.Data.Record(datacentre.HAResources, "vm:3000")
	assert.Equal(t, "1", taken["max_restart"], "the hand-made resource is the stack's now")
	w.up(file, optup.Refresh(), optup.ExpectNoChanges())
	assert.NotContains(t, w.output(), "is not as wanted")

	apart := w.apartRule()
	repaired := func() map[string]map[string]datacentre.Config {
		return map[string]map[string]datacentre.Config{
			"rules": w.lab.Data.Records(datacentre.HARules), "resources": w.lab.Data.Records(datacentre.HAResources),
		}
	}
	before := repaired()

	for name, drift := range map[string]struct {
		change   func()
		commands []string
		names    string
	}{
		"a rule is removed": {
			func() { w.lab.Data.Delete(datacentre.HARules, "talos-vm-3000") },
			[]string{"one-general-1-ha"},
			"clusters[0].workers[0].ha: Proxmox' high availability of one-general-1 is not as wanted, up changes rule talos-vm-3000 (missing)",
		},
		"a rule is disabled": {func() {
			rule, _ := w.lab.Data.Record(datacentre.HARules, apart)
			w.lab.Data.Put(datacentre.HARules, apart, rule.With("disable", "1"))
		}, []string{"one-cp-1-ha"}, "one-cp-1 is not as wanted, up changes rule " + apart},
		"a resource is removed": {
			func() { w.lab.Data.DeleteHAResource(2001) },
			[]string{"one-cp-2-ha"},
			"one-cp-2 is not as wanted, up changes resource vm:2001 (missing)",
		},
		"a resource is changed": {func() {
			resource, _ := w.lab.Data.Record(datacentre.HAResources, "vm:3000")
			w.lab.Data.PutHAResource(3000, resource.With("max_relocate", "4"))
		}, []string{"one-general-1-ha"}, "up changes max_relocate of vm:3000 (4, planned: 1)"},
		"a rule is removed again": {
			func() { w.lab.Data.Delete(datacentre.HARules, "talos-vm-3000") },
			[]string{"one-general-1-ha"},
			"one-general-1 is not as wanted, up changes rule talos-vm-3000 (missing)",
		},
	} {
		drift.change()

		said := w.outputOf(func() {
			_, err := w.preview(file, optpreview.Refresh())
			require.NoError(t, err, name)
		})
		assert.Contains(t, said, drift.names, name)

		done := w.up(file)
		for _, command := range drift.commands {
			assert.Contains(t, done.withOp("update"), "Command "+command, name)
		}

		assert.Empty(t, vms(done.withOp("update")), name)

		for kind, records := range repaired() {
			for id, record := range records {
				assert.Equal(t, withoutState(before[kind][id]), withoutState(record), "%s: %s", name, id)
			}
		}

		assert.Len(t, repaired()["rules"], len(before["rules"]), name)
		w.up(file, optup.Refresh(), optup.ExpectNoChanges())
	}
}

// withoutState returns a resource or rule without what the manager makes of it, the order of machines, and which of
// them wrote it last.
func withoutState(record datacentre.Config) datacentre.Config {
	copied := maps.Clone(record)
	for _, key := range []string{"crm", "resources", "comment"} {
		delete(copied, key)
	}

	return copied
}

// copies returns the hosts that have a disk of a VM, and not the VM itself, sorted.
func (w *world) copies(name string) []string {
	hosts := []string{}
	vm := w.vm(name)

	for _, h := range w.lab.Data.Hosts() {
		for _, v := range w.lab.Data.Volumes(h.Name, "tank", "images") {
			if v.VMID == vm.ID && h.Name != vm.Host && !slices.Contains(hosts, h.Name) && !isCloudInit(v) {
				hosts = append(hosts, h.Name)
			}
		}
	}

	slices.Sort(hosts)

	return hosts
}

// isCloudInit reports whether a volume is a cloud-init drive; Proxmox leaves one where a machine was moved away.
func isCloudInit(v datacentre.Volume) bool { return strings.HasSuffix(v.ID, "-cloudinit") }

// replicas returns the targets of the jobs of a VM, sorted.
func (w *world) replicas(vmid int) []string {
	targets := []string{}

	for id, job := range w.lab.Data.Records(datacentre.Replications) {
		if datacentre.ReplicatedVM(id) == vmid {
			targets = append(targets, job["target"])
		}
	}

	slices.Sort(targets)

	return targets
}

// otherHosts returns the hosts of three except one.
func otherHosts(host string) []string {
	return slices.DeleteFunc([]string{"pve1", "pve2", "pve3"}, func(name string) bool { return name == host })
}

// TestReplication: workers with disks on ZFS are copied to their other hosts, and Proxmox starts them there when their
// host dies.
func TestReplication(t *testing.T) {
	t.Parallel()

	w := openWorld(t, server.Options{
		Speed: testSpeed, Hosts: 3,
		Storages: func(string) []datacentre.StorageOptions {
			return []datacentre.StorageOptions{{
				Name: "tank", Type: "zfspool", Content: []string{"images"}, SizeBytes: 1000 * datacentre.GiB,
			}}
		},
	})
	file := func(workers int, keys string) string {
		s := w.stack(1, workers)
		s.Clusters[0].WorkerYAML = "datastore: tank" + "\n          hosts: [pve1, pve2, pve3]\n          " + keys
		text := s.yaml(t)

		return strings.Replace(text, "  talos-proxmox:templates:",
			fmt.Sprintf("    - {name: pve3, address: %s.0.13}\n  talos-proxmox:templates:", w.network), 1)
	}
	replicated := func(workers int) string { return file(workers, "ha: {replication: {schedule: '*/5'}}") }

	assert.Contains(t, w.failedPreview(file(2, "ha: {}")), `"tank" is of pve1 alone, and one-general-1 has ha: another host `+
		"could not start it; use a datastore that all hosts share (`pvesm status`, Datacenter, Storage), or remove ha. Disks of "+
		"workers on ZFS can be copied: ha.replication")
	assert.Contains(t, w.failedPreview(strings.ReplaceAll(replicated(2), "tank", "local-lvm")),
		`"local-lvm" is of type lvmthin, and Proxmox replicates disks of ZFS pools (zfspool) alone`)

	w.up(replicated(2))

	worker := w.vm("one-general-1")
	others := otherHosts(worker.Host)
	assert.Equal(t, others, w.replicas(worker.ID))
	require.Eventually(t, func() bool { return slices.Equal(others, w.copies(worker.Name)) }, within, 50*time.Millisecond)
	w.up(replicated(2), optup.Refresh(), optup.ExpectNoChanges())

	report, _ := w.clusterStatus()
	assert.NotContains(t, strings.Join(report.Care.Lines(), "\n"), "replication")

	gone := w.addFault(datacentre.Fault{Offline: true, Host: others[1]})

	require.Eventually(t, func() bool {
		report, _ := w.clusterStatus()

		return strings.Contains(strings.Join(report.Care.Lines(), "\n"), worker.Name+": replication of its disks to "+others[1]+" fails: ")
	}, within, 500*time.Millisecond)
	gone()

	// The host of a worker dies, which is not the one that the program asks.
	if worker.Host == "pve1" {
		worker = w.vm("one-general-2")
		others = otherHosts(worker.Host)

		require.Eventually(t, func() bool { return slices.Equal(others, w.copies(worker.Name)) }, within, 50*time.Millisecond)
	}

	powerBack := w.addFault(datacentre.Fault{NoPower: true, Host: worker.Host})

	require.Eventually(t, func() bool {
		vm := w.vm(worker.Name)

		return vm.Running && slices.Contains(others, vm.Host)
	}, within, 50*time.Millisecond)
	powerBack()

	others = otherHosts(w.vm(worker.Name).Host)

	require.Eventually(t, func() bool { return slices.Equal(others, w.replicas(worker.ID)) }, within, 50*time.Millisecond)

	done := w.up(replicated(2), optup.Refresh())
	assert.Empty(t, slices.Concat(vms(done.withOp("update")), vms(done.withOp("delete-replaced"))))
	assert.Empty(t, done.withOp("update"), "Proxmox has turned the copies round itself")
	w.up(replicated(2), optup.Refresh(), optup.ExpectNoChanges())

	// Somebody removes a job, and changes another.
	jobs := w.lab.Data.Records(datacentre.Replications)
	for id, job := range jobs {
		switch id {
		case "3000-0":
			w.lab.Data.Delete(datacentre.Replications, id)
		case "3001-0":
			w.lab.Data.Put(datacentre.Replications, id, job.With("schedule", "*/30"))
		}
	}

	said := w.previewOutput(replicated(2))
	assert.Contains(t, said, "one-general-1 is not as wanted, up changes replication to "+jobs["3000-0"]["target"]+" (missing)")
	assert.Contains(t, said, "one-general-2 is not as wanted, up changes replication to "+jobs["3001-0"]["target"])
	w.up(replicated(2))
	assert.Len(t, w.lab.Data.Records(datacentre.Replications), 4)
	w.up(replicated(2), optup.Refresh(), optup.ExpectNoChanges())

	// Another schedule, and a machine that leaves with its copies.
	w.up(strings.ReplaceAll(replicated(1), "'*/5'", "'*/10', rateMBs: 50"))
	assert.Len(t, w.lab.Data.Records(datacentre.Replications), 2)

	for id, job := range w.lab.Data.Records(datacentre.Replications) {
		assert.Equal(t, "*/10 50", job["schedule"]+" "+job["rate"], id)
	}

	for _, h := range w.lab.Data.Hosts() {
		for _, v := range w.lab.Data.Volumes(h.Name, "tank", "images") {
			assert.True(t, v.VMID != 3001 || isCloudInit(v), "a copy is left on %s: %s", h.Name, v.ID)
		}
	}

	w.destroy(replicated(1))
	assert.Empty(t, w.machines())
	assert.Empty(t, w.lab.Data.Records(datacentre.Replications))

	for _, h := range w.lab.Data.Hosts() {
		left := w.lab.Data.Volumes(h.Name, "tank", "images")
		assert.Empty(t, slices.DeleteFunc(left, isCloudInit), h.Name)
	}
}
