package engine_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optpreview"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/server"
	"talos-proxmox/stacks"
)

// cloneTries is how often clones are tried: a fault that occurs less often does not fail the run.
const cloneTries = 2 * 3 // of two machines

// TestANewGPUHostMovesNoMachine adds a host with a GPU that sorts before the host of a GPU worker.
func TestANewGPUHostMovesNoMachine(t *testing.T) {
	t.Parallel()

	w := openWorld(t, server.Options{Speed: testSpeed, Hosts: 3})
	w.setGateTimeout("60s")

	withBoth := gpuStack{Network: w.network, Workers: 2}.yaml(t)
	before := strings.NewReplacer(
		"name: pve1\n", "name: pve3\n", w.network+".0.11", w.network+".0.13", "count: 2", "count: 1",
	).Replace(withBoth)
	pve3 := before[strings.Index(before, "    - name: pve3"):strings.Index(before, "    - {name: pve2")]
	withBoth = strings.Replace(withBoth, "    - {name: pve2", pve3+"    - {name: pve2", 1)

	w.up(before)
	original := w.vm("one-gpu-1")
	require.Equal(t, "pve3", original.Host)

	const refused = "clusters[0].gpuWorkers[0].nodes: one-gpu-1 has its GPU on pve3, and would be recreated on pve1. " +
		`Set where the machines are, in addition to what is set there: nodes: {"1": {host: pve3}}`
	// Twice: a refused run keeps what the next one is compared with.
	assert.Contains(t, w.failedUp(withBoth), refused)
	assert.Contains(t, w.failedUp(withBoth), refused)
	assert.NotEmpty(t, w.kubeconfig(), "the outputs of the last run stay")

	pinned := strings.Replace(withBoth, "name: gpu,", `name: gpu, nodes: {"1": {host: pve3}},`, 1)
	done := w.up(pinned)
	assert.Equal(t, []string{"VirtualMachine one-gpu-2-vm"}, vms(done.withOp("create")))
	assert.Empty(t, vms(done.withOp("replace")))
	w.requireGPUs("one-gpu-2", 1)

	after, _ := w.lab.Data.VM(original.ID)
	assert.Equal(t, original.Config["smbios1"], after.Config["smbios1"], "the same machine")

	_, err := w.preview(pinned, optpreview.ExpectNoChanges())
	require.NoError(t, err, w.output())

	// A pool cannot be renamed: other machines would need the VMIDs of these.
	assert.Contains(t, w.failedUp(strings.Replace(pinned, "name: gpu,", "name: ai,", 1)),
		`clusters[0].gpuWorkers[0].name: "ai" creates one-ai-1 with the VMID 4000 of one-gpu-1, which runs. Running machines cannot be renamed`)
}

// TestFailedFirstUpIsComparedWithItsMachines: a first up that fails leaves machines without outputs.
func TestFailedFirstUpIsComparedWithItsMachines(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	s := stack{Network: w.network, OneHost: true, Clusters: []cluster{clusterOne(1, 1)}}.yaml(t)

	_, err := w.preview(s)
	require.NoError(t, err, "a stack that was never deployed: %s", w.output())

	removeFault := w.addFault(
		datacentre.Fault{Task: "qmstart", Message: "start failed: QEMU exited with code 1", Times: cloneTries},
	)

	_, err = w.tryUp(t.Context(), s)
	require.Error(t, err)
	removeFault()

	renamed := strings.Replace(s, "name: general", "name: batch", 1)

	const refused = `clusters[0].workers[0].name: "batch" creates one-batch-1 with the VMID 3000 of one-general-1, which runs. Running machines cannot be renamed`

	_, err = w.preview(renamed)
	require.Error(t, err)
	assert.Contains(t, w.output(), refused)
	assert.Contains(t, w.failedUp(renamed), refused)
	assert.Equal(t, map[string]int{"one-cp-1": 2000, "one-general-1": 3000}, w.machines())
}

// TestMachineMovesToItsConfiguredHost: the machine stays there once the stack file no longer sets a host, although the
// plan would place a new one elsewhere.
func TestMachineMovesToItsConfiguredHost(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	w.setGateTimeout("60s")

	s := w.stack(1, 1)
	w.up(s.yaml(t))

	before := w.vm("one-general-1")
	target := map[string]string{"pve1": "pve2", "pve2": "pve1"}[before.Host]
	s.Clusters[0].WorkerYAML = `nodes: {"1": {host: ` + target + `}}`
	done := w.up(s.yaml(t))
	assert.Equal(t, []string{"VirtualMachine one-general-1-vm"}, vms(done.withOp("update")))
	assert.Empty(t, vms(done.withOp("delete-replaced")))

	after, _ := w.lab.Data.VM(before.ID)
	assert.Equal(t, target, after.Host)
	assert.Equal(t, before.Config["vmgenid"], after.Config["vmgenid"], "the same machine")
	assert.True(t, after.Running)
	assert.Equal(t, target, w.placement("one-general-1"))
	w.up(s.yaml(t), optup.Refresh(), optup.ExpectNoChanges())

	// The template on its host is removed, since a new machine would not be there.
	s.Clusters[0].WorkerYAML = ""
	done = w.up(s.yaml(t), optup.Refresh())
	assert.Empty(t, slices.Concat(vms(done.withOp("update")), vms(done.withOp("delete-replaced"))))
	assert.Equal(t, target, w.placement("one-general-1"))
	assert.Contains(
		t, w.outputs()[stacks.Readme].Value,
		"one-general-1 runs on "+target+" and was not moved; a new machine would be placed on "+before.Host,
	)
}

// placement returns the host of a machine in the stack's outputs.
func (w *world) placement(machine string) any {
	w.t.Helper()

	clusters, ok := w.outputs()[stacks.Placement].Value.(map[string]any)
	require.True(w.t, ok)
	hosts, ok := clusters["one"].(map[string]any)
	require.True(w.t, ok)

	return hosts[machine]
}
