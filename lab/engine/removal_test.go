package engine_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/pulumi/pulumi/sdk/v3/go/common/apitype"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/planguard"
)

// urnOf returns the URN of a resource in the state.
func (w *world) urnOf(stack, name string) string {
	w.t.Helper()

	resources := w.deployment(stack).Resources
	i := slices.IndexFunc(resources, func(r apitype.ResourceV3) bool { return r.URN.Name() == name })
	require.GreaterOrEqual(w.t, i, 0, name)

	return string(resources[i].URN)
}

// TestControlPlanesLeave removes two of five control planes, one after the other, and replaces one, which joins as
// another member.
func TestControlPlanesLeave(t *testing.T) {
	t.Parallel()

	w, s := upOne(t, 5, 0)
	w.requireMembers(5)

	s.Clusters[0].ControlPlanes = 3
	output := w.outputOf(func() { w.up(s.yaml(t)) })
	w.requireMembers(3)
	w.requireNodes("one-cp-1", "one-cp-2", "one-cp-3")
	assert.Equal(t, 2, strings.Count(output, "etcd: is no longer a member"))
	assert.Equal(t, 2, strings.Count(output, "no snapshot is taken: the stack sets no backup.recipients"))

	w.up(s.yaml(t), optup.ExpectNoChanges())

	output = w.outputOf(func() { w.up(s.yaml(t), optup.Replace([]string{w.urnOf(s.yaml(t), "one-cp-2-vm")})) })
	assert.Contains(t, output, "one-cp-2: etcd: is no longer a member")
	w.requireMembers(3)
	w.requireNodes("one-cp-1", "one-cp-2", "one-cp-3")
	w.requireRunning(3)
	w.up(s.yaml(t), optup.ExpectNoChanges())
}

// TestKilledRemovals kills a run that removes nodes at different moments: one more up converges.
func TestKilledRemovals(t *testing.T) {
	t.Parallel()

	off := func(w *world) bool {
		for _, vmid := range w.machines() {
			if vm, found := w.lab.Data.VM(vmid); found && !vm.Running {
				return true
			}
		}

		return false
	}

	for name, test := range map[string]struct {
		reached func(*world) bool
		plugins bool
		opts    []optup.Option
	}{
		"a machine wipes itself": {reached: func(w *world) bool { // its console ends with the reset
			return strings.Contains(w.consoles(), "reset via API received") || off(w)
		}},
		"a machine is wiped": {reached: off, plugins: true},
		"a member has left":  {plugins: true, reached: func(w *world) bool { return len(w.etcdMachines()) < 3 }},
		// Without a refresh, the provider fails to delete a missing VM.
		"a VM is gone": {
			reached: func(w *world) bool { return len(w.machines()) < 5 }, opts: []optup.Option{optup.Refresh()},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			w := newWorld(t, testSpeed)
			s := w.stack(3, 2)
			w.up(s.yaml(t))

			s.Clusters[0].ControlPlanes, s.Clusters[0].Workers = 1, 1
			w.killedUp(s.yaml(t), test.reached, test.plugins)
			w.recover()
			w.up(s.yaml(t), test.opts...)

			assert.Equal(t, map[string]int{"one-cp-1": 2000, "one-general-1": 3000}, w.machines())
			w.requireMembers(1)
			w.requireNodes("one-cp-1", "one-general-1")
			w.requireRunning(2)
			w.up(s.yaml(t), optup.ExpectNoChanges())
		})
	}
}

// TestARemovalIsCutAfterItsNodesLeft: a run ends when it has deleted the leave commands of nodes, and neither their
// configurations nor their VMs. The state alone does not tell that they have left: Proxmox
// and the remaining control plane do. The guard of plans accepts the rest as well.
func TestARemovalIsCutAfterItsNodesLeft(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	w.options.NeverKilled = false
	s := w.stack(3, 2)
	w.up(s.yaml(t))

	s.Clusters[0].ControlPlanes, s.Clusters[0].Workers = 1, 1
	cut := w.deployment(s.yaml(t))

	w.when(t.Context(), func(w *world) bool { return strings.Contains(w.consoles(), "reset via API received") }, func() {
		w.killProgram("pulumi-resource-proxmoxve")
	})

	_, err := w.tryUp(t.Context(), s.yaml(t))
	require.Error(t, err)
	require.Len(t, w.machines(), 5, w.output())

	state := w.state(s.yaml(t))
	for _, name := range []string{"one-cp-2", "one-cp-3", "one-general-2"} {
		require.NotContains(t, state, name+"-leave", "the nodes have left")
	}

	cut.Resources = slices.DeleteFunc(cut.Resources, func(r apitype.ResourceV3) bool {
		return slices.Contains([]string{"one-cp-2-leave", "one-cp-3-leave", "one-general-2-leave"}, r.URN.Name())
	})
	w.setDeployment(s.yaml(t), cut)

	// One that was started again might belong to the cluster.
	started := w.vm("one-cp-3").ID
	w.startVM(started)

	output := w.outputOf(func() {
		_, err := w.preview(s.yaml(t))
		require.Error(t, err)
	})
	assert.Contains(t, output, "one-cp-3: it belongs to the cluster no longer or not yet, and runs: `qm stop 2002` on ")
	assert.NotContains(t, output, "one-cp-2: ")
	w.stopVM(started)

	plan, _ := w.reviewed(s.yaml(t))
	rejected, _ := planguard.Check(plan, nil)
	assert.Empty(t, rejected)

	w.recover()
	output = w.outputOf(func() { w.up(s.yaml(t)) })
	assert.Contains(t, output, "one-cp-2 has left cluster one before: its VM is deleted, with its data")

	assert.Equal(t, map[string]int{"one-cp-1": 2000, "one-general-1": 3000}, w.machines())
	w.requireMembers(1)
	w.requireNodes("one-cp-1", "one-general-1")
	w.up(s.yaml(t), optup.ExpectNoChanges())
}

// TestANodeLeavesAfterARotation: the stored request of a removed node has the authority of the Talos API that machines
// accept now, although no run has brought the stack up since.
func TestANodeLeavesAfterARotation(t *testing.T) {
	t.Parallel()

	w, s := upOne(t, 1, 2)

	out, err := w.runCommand("secrets", "rotate-ca", w.options.Stack, "--authority", "talos", "--yes")
	require.NoError(t, err, out)

	s.Clusters[0].Workers = 1
	w.up(s.yaml(t))
	w.requireNodes("one-cp-1", "one-general-1")
	w.requireRunning(2)
	w.up(s.yaml(t), optup.ExpectNoChanges())
}

// consoles returns the consoles of all machines.
func (w *world) consoles() string {
	var all strings.Builder

	for _, m := range w.lab.Machines.Status() {
		all.WriteString(strings.Join(m.Console, "\n"))
	}

	return all.String()
}
