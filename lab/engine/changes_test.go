package engine_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optpreview"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/providers/proxmoxve"
)

// stackChange is a change of the stack file, the warnings about it, and its effects on machines.
type stackChange struct {
	name     string
	from     string // in the previous stack file
	to       string
	warnings []string // prefixes
	// machines are the effects by machine; those that are not listed stay unchanged.
	machines map[string]proxmoxve.Effect
	noGate   bool // no machine changes, so that the health gate does not run
}

const (
	onlyOne = "cluster one has one control plane: its API is unavailable while one-cp-1 restarts"
	pool    = "clusters[0].workers[0]"
)

// stackChanges are made one after the other on one cluster.
func stackChanges(network string) []stackChange {
	workers := func(effect proxmoxve.Effect) map[string]proxmoxve.Effect {
		return map[string]proxmoxve.Effect{"one-general-1": effect, "one-general-2": effect}
	}
	everything := func(effect proxmoxve.Effect) map[string]proxmoxve.Effect {
		all := workers(effect)
		all["one-cp-1"] = effect

		return all
	}

	const both, all = "one-general-1, one-general-2 restart: ", "one-cp-1, one-general-1, one-general-2 restart: "

	return []stackChange{
		{
			name: "linked clones", from: "clone: full", to: "clone: linked", noGate: true,
			warnings: []string{
				"clusters[0].clone: full → linked does not affect running machines (one-cp-1, one-general-1, one-general-2), only new ones; " +
					"to recreate a worker, lower count and raise it again",
			},
		},
		{
			name:     "full clones",
			from:     "clone: linked",
			to:       "clone: full",
			noGate:   true,
			warnings: []string{"clusters[0].clone: linked → full does not affect running machines"},
		},
		{
			name:     "memory",
			from:     "memoryMiB: 4096\n",
			to:       "memoryMiB: 5120\n",
			warnings: []string{both + "memory 4096 → 5120 MiB (" + pool + ".memoryMiB)"},
			machines: workers(proxmoxve.Restart),
		},
		{
			name:     "cores of the only control plane",
			from:     "cores: 2, memoryMiB: 4096, diskGiB: 20, firstVmid: 2000",
			to:       "cores: 3, memoryMiB: 4096, diskGiB: 20, firstVmid: 2000",
			warnings: []string{"one-cp-1 restarts: cores 2 → 3 (clusters[0].controlPlane.cores)", onlyOne},
			machines: map[string]proxmoxve.Effect{"one-cp-1": proxmoxve.Restart},
		},
		{
			name: "one machine's own memory", from: "numa: false", to: `nodes: {"2": {memoryMiB: 6144}}`,
			warnings: []string{"one-general-2 restarts: memory 5120 → 6144 MiB (" + pool + ".nodes.2.memoryMiB)"},
			machines: map[string]proxmoxve.Effect{"one-general-2": proxmoxve.Restart},
		},
		{name: "the system disk grows", from: "diskGiB: 20\n", to: "diskGiB: 22\n", machines: workers(proxmoxve.InPlace)},
		{
			name:     "a disk is added",
			from:     "extraDisks: []",
			to:       "extraDisks: [{sizeGiB: 10}]",
			machines: workers(proxmoxve.InPlace),
		},
		{name: "a disk grows", from: "sizeGiB: 10", to: "sizeGiB: 12", machines: workers(proxmoxve.InPlace)},
		{
			name: "a disk moves", from: "{sizeGiB: 12}", to: "{sizeGiB: 12, datastore: local-zfs}",
			warnings: []string{
				both + "disk virtio1 local-lvm → local-zfs, off while it is copied (" + pool + ".extraDisks[0].datastore)",
			},
			machines: workers(proxmoxve.Restart),
		},
		{name: "tags", from: "tags: []", to: "tags: [new]", machines: workers(proxmoxve.InPlace)},
		{name: "start with the host", from: "onBoot: true", to: "onBoot: false", machines: workers(proxmoxve.InPlace)},
		{name: "start-up order", from: "startupOrder: 0", to: "startupOrder: 3", machines: workers(proxmoxve.InPlace)},
		{
			name: "processor type", from: "cpuType: host", to: "cpuType: x86-64-v2-AES",
			warnings: []string{both + "processor type host → x86-64-v2-AES (" + pool + ".cpuType)"},
			machines: workers(proxmoxve.Restart),
		},
		{
			name: "another card", from: "extraNICs: []", to: "extraNICs: [{bridge: vmbr0}]",
			warnings: []string{both + "a network card is added (" + pool + ".extraNICs)"}, machines: workers(proxmoxve.Restart),
		},
		{
			name: "MTU", from: "mtu: 0", to: "mtu: 1400",
			warnings: []string{all + "MTU 0 → 1400 (clusters[0].network.mtu)", onlyOne}, machines: everything(proxmoxve.Restart),
		},
		{
			name: "name servers", from: "dns: [" + network + ".1.1]", to: "dns: [" + network + ".1.1, " + network + ".1.2]",
			warnings: []string{
				all + "name servers " + network + ".1.1 → " + network + ".1.1, " + network + ".1.2 (clusters[0].network.dns)",
				onlyOne,
			},
			machines: everything(proxmoxve.Restart),
		},
		{
			name: "the guest agent", from: "extensions: [qemu-guest-agent]", to: "extensions: []",
			warnings: []string{all + "guest agent true → false (templates.talos.extensions)", onlyOne},
			machines: everything(proxmoxve.Restart),
		},
	}
}

// TestChangesOfRunningMachines changes each kind of key on a running cluster, and compares the preview's warnings with
// the effects: whether machines restart, are replaced, and keep their disks.
func TestChangesOfRunningMachines(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	w.setGateTimeout("60s")

	s := stack{Network: w.network, OneHost: true, Clusters: []cluster{clusterOne(1, 2)}} // which has two datastores
	s.Clusters[0].WorkerYAML = strings.Join([]string{
		"numa: false", "extraDisks: []", "extraNICs: []", "tags: []", "onBoot: true", "startupOrder: 0", "cpuType: host",
	}, "\n          ")
	file := strings.NewReplacer(
		"      network:\n", "      clone: full\n      network:\n        mtu: 0\n",
	).Replace(s.yaml(t))
	w.up(file)

	for _, p := range stackChanges(w.network) {
		require.Contains(t, file, p.from, p.name)
		file = strings.Replace(file, p.from, p.to, 1)
		w.requireChange(p, file)
	}

	output := w.outputOf(func() {
		_, err := w.preview(file, optpreview.ExpectNoChanges())
		require.NoError(t, err, w.output())
	})
	assert.Empty(t, warnings(output), "nothing is left to change")
	w.up(file, optup.Refresh(), optup.ExpectNoChanges())
	w.requireRunning(3)

	// A manual change is reverted, and the health gate runs after that as well.
	vm, _ := w.lab.Data.VM(3000)
	require.NoError(t, w.lab.Data.SetConfig(labRoot, vm.Host, vm.ID, datacentre.Config{"memory": "2048"}))

	done := w.up(file, optup.Refresh())
	assert.Equal(t, []string{"VirtualMachine one-general-1-vm"}, vms(done.withOp("update")))
	assert.Contains(t, []string{"update", "delete-replaced"}, done["Command one-healthy"], "either runs it again")
	w.up(file, optup.Refresh(), optup.ExpectNoChanges())
}

// requireChange makes a change, and checks its warnings and effects.
func (w *world) requireChange(p stackChange, file string) {
	w.t.Helper()

	before := w.machineStates()

	lines := warnings(w.previewOutput(file))
	if assert.Len(w.t, lines, len(p.warnings), "%s: %v", p.name, lines) {
		for i, line := range lines {
			assert.True(w.t, strings.HasPrefix(line, p.warnings[i]), "%s: %s", p.name, line)
		}
	}

	done := w.up(file)
	assert.Equal(
		w.t, !p.noGate, slices.Contains(append(replaced(done), done.withOp("update")...), "Command one-healthy"),
		"%s: the health gate runs", p.name,
	)

	after := w.machineStates()
	require.Equal(w.t, slices.Sorted(maps.Keys(before)), slices.Sorted(maps.Keys(after)), p.name)

	for name, current := range after {
		former := before[name]
		step := done["VirtualMachine "+name+"-vm"]
		tasks := current.tasks[len(former.tasks):]
		want := p.machines[name]

		if want == "" {
			want = proxmoxve.Ignored
		}

		assert.Equal(
			w.t, want, observedEffect(step, tasks), "%s: %s, tasks %v", p.name, name, tasks,
		)
		assert.Equal(w.t, former.vm.Config["vmgenid"], current.vm.Config["vmgenid"], "%s: %s is the same machine", p.name, name)
	}
}

// machineState is a machine's VM, with the tasks that it had.
type machineState struct {
	vm    datacentre.VM
	tasks []string
}

func (w *world) machineStates() map[string]machineState {
	all := map[string]machineState{}

	for name, vmid := range w.machines() {
		vm, _ := w.lab.Data.VM(vmid)
		all[name] = machineState{vm, w.tasksOf(vmid)}
	}

	return all
}

// warnings returns the program's warnings in a run's output, without duplicates and without the CLI's about plugins.
func warnings(output string) []string {
	var lines []string

	for line := range strings.Lines(output) {
		_, text, found := strings.Cut(line, "warning: ")
		if found && !strings.HasPrefix(text, "using pulumi-resource-") && !slices.Contains(lines, strings.TrimSpace(text)) {
			lines = append(lines, strings.TrimSpace(text))
		}
	}

	return lines
}

// TestImpossibleDiskChangesAreRefused shrinks and removes disks, which the provider would refuse in the middle of an
// up, and then follows the advice of the refusals.
func TestImpossibleDiskChangesAreRefused(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	w.setGateTimeout("60s")

	s := w.stack(1, 2)
	s.Clusters[0].WorkerYAML = "extraDisks: [{sizeGiB: 10}, {sizeGiB: 12}]"
	file := s.yaml(t)
	w.up(file)

	before := w.machineStates()
	worse := strings.NewReplacer("diskGiB: 20\n", "diskGiB: 19\n", "{sizeGiB: 10}", "{sizeGiB: 9}").Replace(file)
	worse = strings.Replace(worse, "    talos: {version", "    talos: {diskGiB: 10, version", 1)
	out := strings.Replace(file, ", {sizeGiB: 12}", "", 1)

	for file, refusals := range map[string][]string{
		worse: {
			pool +
				".diskGiB: 19 is less than the 20 GiB that one-general-1 has at scsi0, and disks cannot shrink; use at least 20",
			pool +
				".extraDisks[0].sizeGiB: 9 is less than the 10 GiB that one-general-1 has at virtio1, and disks cannot shrink; use at least 10",
		},
		strings.Replace(file, "extraDisks:", "datastore: local-zfs\n          extraDisks:", 1): {
			pool +
				`.datastore: "local-zfs" is not local-lvm, where one-general-1 has its system disk, and no run can move that with its EFI disk; set local-lvm`,
		},
		strings.Replace(file, "datastore: local-lvm", "datastore: local-lvn", 1): {
			`templates.talos.datastore: "local-lvn" is not local-lvm (did you mean that?), where one-cp-1 has its system disk`,
		},
		out: {pool + ".extraDisks: disk virtio2 (12 GiB on local-lvm) of one-general-1 would have to be removed, and no run removes a disk from a machine; "},
	} {
		output := w.failedPreview(file)

		for _, refusal := range refusals {
			assert.Contains(t, output, refusal)
			assert.Contains(t, w.failedUp(file), refusal)
		}
	}

	assert.Equal(t, before, w.machineStates(), "nothing was changed")

	// Machines that are recreated lack the disk.
	w.up(strings.Replace(out, "count: 2\n", "count: 0\n", 1))
	w.up(out)
	w.requireRunning(3)

	// A machine migrates while it runs, and another VMID is another machine.
	pinned := map[string]string{"pve1": "pve2", "pve2": "pve1"}[before["one-general-1"].vm.Host]
	moves := strings.Replace(out, "extraDisks: [", `nodes: {"1": {host: `+pinned+"}}\n          extraDisks: [", 1)
	w.requireChange(stackChange{name: "a host", machines: map[string]proxmoxve.Effect{"one-general-1": proxmoxve.InPlace}}, moves)
	assert.Equal(t, pinned, w.machineStates()["one-general-1"].vm.Host)

	other := strings.Replace(moves, `"1": {host`, `"2": {vmid: 3050}, "1": {host`, 1)
	assert.Equal(
		t, []string{"one-general-2 is replaced, with its data: another VMID (" + pool + ".nodes.2.vmid)"},
		warnings(w.previewOutput(other)),
	)

	done := w.up(other)
	assert.Equal(t, proxmoxve.Replace, observedEffect(done["VirtualMachine one-general-2-vm"], nil))
	assert.Equal(t, map[string]int{"one-cp-1": 2000, "one-general-1": 3000, "one-general-2": 3050}, w.machines())
	w.requireRunning(3)
}

// TestFailedResizeCanBeReverted: after a change that failed, the state has the requested size, and the disk is smaller.
func TestFailedResizeCanBeReverted(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	s := stack{Network: w.network, OneHost: true, Clusters: []cluster{clusterOne(1, 1)}}
	s.Clusters[0].WorkerYAML = "extraDisks: [{sizeGiB: 10}]"
	file := s.yaml(t)
	w.up(file)

	larger := strings.Replace(file, "sizeGiB: 10", "sizeGiB: 12", 1)
	unlock := w.addFault(datacentre.Fault{Lock: "backup", VMID: lastWorker(w, s).VMID})
	w.failedUp(larger)
	unlock()

	assert.Equal(t, []string{
		"one-general-1: the state has other sizes of disks than Proxmox, as after a change that failed; `pulumi up --refresh` is needed where this run does not refresh",
	}, warnings(w.previewOutput(file)))
	w.up(file, optup.Refresh())
	w.up(file, optup.ExpectNoChanges())
}
