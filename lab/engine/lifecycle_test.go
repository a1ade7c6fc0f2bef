package engine_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optpreview"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestLifecycle takes one stack through everything a user does with it, from the first up to destroy, for both sources
// of bootable nodes.
func TestLifecycle(t *testing.T) {
	t.Parallel()

	for _, source := range []string{"image", "iso"} {
		t.Run("by "+source, func(t *testing.T) {
			t.Parallel()
			lifecycle(t, source)
		})
	}
}

func lifecycle(t *testing.T, source string) {
	w := newWorld(t, testSpeed)
	s := stack{Network: w.network, Source: source, Version: "v1.14.3", Clusters: []cluster{clusterOne(1, 2)}}

	done := w.up(s.yaml(t))
	assert.NotEmpty(t, done.withOp("create"))
	assert.Equal(t, map[string]int{"one-cp-1": 2000, "one-general-1": 3000, "one-general-2": 3001}, w.machines())
	w.requireRunning(3)

	// Unchanged: nothing to do, to preview or to refresh.
	_, err := w.preview(s.yaml(t), optpreview.ExpectNoChanges())
	require.NoError(t, err, w.output())
	done = w.up(s.yaml(t), optup.ExpectNoChanges())
	assert.Empty(t, done)
	assert.Empty(t, w.refresh(s.yaml(t)))

	// Workers 2 → 4: only the new ones.
	s.Clusters[0].Workers = 4
	done = w.up(s.yaml(t))
	assert.Equal(
		t, []string{"VirtualMachine one-general-3-vm", "VirtualMachine one-general-4-vm"}, vms(done.withOp("create")),
	)
	assert.Empty(t, vms(done.withOp("update")))
	w.requireRunning(5)

	// 4 → 1: only those machines go.
	s.Clusters[0].Workers = 1
	done = w.up(s.yaml(t))
	assert.Equal(
		t, []string{"VirtualMachine one-general-2-vm", "VirtualMachine one-general-3-vm", "VirtualMachine one-general-4-vm"},
		vms(done.withOp("delete")),
	)
	assert.Empty(t, vms(done.withOp("update")))
	assert.Equal(t, []string{"one-cp-1", "one-general-1"}, slices.Sorted(maps.Keys(w.machines())))

	// Control planes 1 → 3.
	s.Clusters[0].ControlPlanes = 3
	done = w.up(s.yaml(t))
	assert.Equal(t, []string{"VirtualMachine one-cp-2-vm", "VirtualMachine one-cp-3-vm"}, vms(done.withOp("create")))
	assert.Empty(t, vms(append(done.withOp("update"), done.withOp("replace")...)))
	w.requireRunning(4)
	w.requireMembers(3)

	// Back to one and to three again: those that go leave etcd first.
	s.Clusters[0].ControlPlanes = 1
	done = w.up(s.yaml(t))
	assert.Equal(t, []string{"VirtualMachine one-cp-2-vm", "VirtualMachine one-cp-3-vm"}, vms(done.withOp("delete")))
	w.requireRunning(2)
	w.requireMembers(1)
	w.requireNodes("one-cp-1", "one-general-1")

	s.Clusters[0].ControlPlanes = 3
	w.up(s.yaml(t))
	w.requireRunning(4)
	w.requireMembers(3)

	// More memory for the worker: in place, that node only.
	s.Clusters[0].WorkerMemory = 6144
	done = w.up(s.yaml(t))
	assert.Equal(t, []string{"VirtualMachine one-general-1-vm"}, vms(done.withOp("update")))
	assert.Empty(t, append(done.withOp("replace"), done.withOp("create")...))
	w.requireRunning(4)

	// A new Talos version in the template: no node is replaced.
	before := w.machines()
	s.Version = "v1.14.4"
	done = w.up(s.yaml(t))
	assert.Empty(t, vms(slices.Concat(done.withOp("create"), done.withOp("replace"), done.withOp("delete"))))
	assert.Equal(t, before, w.machines())
	w.requireRunning(4)

	// A second cluster in the same stack does not touch the first.
	s.Clusters = append(s.Clusters, cluster{
		Name:               "two",
		ControlPlanes:      1,
		Workers:            1,
		FirstControlPlane:  2100,
		FirstWorker:        3100,
		FirstAddress:       60,
		FirstWorkerAddress: 70,
	})
	done = w.up(s.yaml(t))
	assert.Equal(t, []string{"VirtualMachine two-cp-1-vm", "VirtualMachine two-general-1-vm"}, vms(done.withOp("create")))

	for name, op := range done {
		assert.False(t, op != "create" && strings.Contains(name, "one-"), "%s %s", op, name)
	}

	w.requireRunning(6)

	// A whole cluster is removed: its nodes do not leave it first.
	s.Clusters = s.Clusters[:1]
	printed := len(w.output())
	done = w.up(s.yaml(t))
	assert.Equal(t, []string{"VirtualMachine two-cp-1-vm", "VirtualMachine two-general-1-vm"}, vms(done.withOp("delete")))
	assert.NotContains(t, w.output()[printed:], "wipes itself and shuts down")

	w.destroy(s.yaml(t))
	w.requireEmpty()
	assert.NotContains(t, w.output()[printed:], "wipes itself and shuts down")
}

// vms returns the virtual machines in a list of resources.
func vms(resources []string) []string {
	var list []string

	for _, resource := range resources {
		if strings.HasPrefix(resource, "VirtualMachine ") {
			list = append(list, resource)
		}
	}

	return list
}

// requireRunning checks without waiting that this many machines run with every service up.
func (w *world) requireRunning(count int) {
	w.t.Helper()

	machines := w.lab.Machines.Status()
	require.Len(w.t, machines, count)

	for _, m := range machines {
		require.Equal(w.t, "running", m.Stage, "%s: %s %v", m.Name, m.Problem, m.Console)

		for _, service := range m.Services {
			require.Contains(w.t, []string{"Running", "Finished"}, service.State, "%s: service %s", m.Name, service.Name)
		}
	}
}

// requireEmpty checks that no VM, template, image or orphaned volume is left on any host.
func (w *world) requireEmpty() {
	w.t.Helper()

	require.Empty(w.t, w.lab.Data.VMs())

	for _, host := range w.lab.Data.Hosts() {
		for _, storage := range host.Storages {
			require.Empty(w.t, w.lab.Data.Volumes(host.Name, storage.Name, ""), "%s of %s", storage.Name, host.Name)
		}
	}
}

// TestConfigurationErrorsLeaveTheWorldUntouched runs up with a broken stack file, before and after a good one.
func TestConfigurationErrorsLeaveTheWorldUntouched(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	good := w.stack(1, 0)
	bad := w.stack(2, 1)
	bad.Clusters[0].WorkerMemory = 100

	done, err := w.tryUp(t.Context(), bad.yaml(t))
	require.Error(t, err)
	assert.Contains(t, w.output(), "clusters[0].controlPlane.count: 2")
	assert.Contains(t, w.output(), "clusters[0].workers[0].memoryMiB: 100")
	assert.Empty(t, vms(done.withOp("create")))
	w.requireEmpty()

	w.up(good.yaml(t))

	before, inputs := w.lab.Data.VMs(), w.resourceInputs(good.yaml(t))
	_, err = w.tryUp(t.Context(), bad.yaml(t))
	require.Error(t, err)
	assert.Equal(t, before, w.lab.Data.VMs())
	assert.Equal(t, inputs, w.resourceInputs(good.yaml(t)))
}

// TestProtection: a protected stack refuses to lose its control planes, secrets and bootstrap, on Proxmox as well,
// until the stack file unprotects it.
func TestProtection(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	s := stack{Network: w.network, Protect: true, Clusters: []cluster{clusterOne(3, 1)}}
	w.up(s.yaml(t))

	for vmid := 2000; vmid < 2003; vmid++ {
		_, err := w.lab.Data.DestroyVM(labRoot, w.hostOf(vmid), vmid, nil)
		require.ErrorContains(t, err, fmt.Sprintf("can't remove VM %d - protection mode enabled", vmid))
	}

	// After a manual unprotect in Pulumi, no node leaves whose VM is still protected on Proxmox.
	smaller := s
	smaller.Clusters = []cluster{clusterOne(1, 1)}
	_, err := w.pulumi("state", "unprotect", "--stack", "lab", "--yes", "--all")
	require.NoError(t, err)
	assert.Contains(t, w.failedUp(smaller.yaml(t)), "stays in its cluster: its VM is protected on Proxmox")
	w.requireMembers(3)
	w.requireRunning(4)
	w.up(s.yaml(t))

	s.Protect, smaller.Protect = false, false
	booted := w.bootTimes()
	done := w.up(s.yaml(t))
	assert.Equal(t, "update", done["VirtualMachine one-cp-1-vm"])
	assert.Equal(t, booted, w.bootTimes(), "nothing restarts")

	w.up(s.yaml(t), optup.Replace([]string{w.urnOf(s.yaml(t), "one-cp-2-vm")}))
	w.up(smaller.yaml(t))
	w.requireMembers(1)

	smaller.Protect = true
	w.up(smaller.yaml(t))

	e := w.engine(smaller.yaml(t))
	_, err = e.Destroy(t.Context())
	e.Close()
	require.Error(t, err)
	assert.Contains(t, w.output(), "one-cp-1-vm")
	assert.Contains(t, w.output(), "protect")
	assert.Contains(t, w.machines(), "one-cp-1")
	w.requireMembers(1)

	smaller.Protect = false
	w.up(smaller.yaml(t))
	w.destroy(smaller.yaml(t))
	w.requireEmpty()
}

// requireNodes checks which Node objects exist.
func (w *world) requireNodes(names ...string) {
	w.t.Helper()

	list, err := w.kubeClient().CoreV1().Nodes().List(w.t.Context(), metav1.ListOptions{})
	require.NoError(w.t, err)

	found := make([]string, 0, len(list.Items))
	for _, n := range list.Items {
		found = append(found, n.Name)
	}

	require.ElementsMatch(w.t, names, found)
}

// resourceInputs returns the inputs of a state's resources by URN.
func (w *world) resourceInputs(stack string) map[resource.URN]any {
	w.t.Helper()

	inputs := map[resource.URN]any{}
	for _, r := range w.deployment(stack).Resources {
		inputs[r.URN] = r.Inputs
	}

	return inputs
}
