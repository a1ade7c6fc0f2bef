package engine_test

import (
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optpreview"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/planguard"
	"talos-proxmox/internal/vmdiff"
)

// TestTheOnlyCopyOfEtcdStays: two of three control planes were lost and created again, and wait for etcd. A replacement
// of the third one would delete the cluster's data: its preview warns, the guard of plans rejects it, and the run
// refuses it. TestRealRestore saves and restores the data of such a survivor.
func TestTheOnlyCopyOfEtcdStays(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	w.setGateTimeout("20s")

	s := w.stack(3, 1)
	file := s.yaml(t)
	w.up(file)

	for _, name := range []string{"one-cp-2", "one-cp-3"} {
		w.removeVM(w.vm(name).ID)
	}

	_, err := w.tryUp(t.Context(), file, optup.Refresh())
	require.Error(t, err, "the health gate cannot pass")

	survivor := w.urnOf(file, "one-cp-1-vm")
	boots := w.bootTimes()

	plan, _ := w.reviewed(file, optpreview.Replace([]string{survivor}))

	warned := false
	for _, warning := range plan.Warnings {
		warned = warned || strings.HasPrefix(warning.Text, "one-cp-1"+vmdiff.OnlyCopy+"one: one-cp-2, one-cp-3 have none and wait")
	}

	assert.True(t, warned, "%v", plan.Warnings)

	rejected, _ := planguard.Check(plan, nil)
	require.Len(t, rejected, 1)
	assert.Contains(t, rejected[0].String(), "it is a control plane of cluster one and a member of its etcd, and has the only copy")

	output := w.outputOf(func() {
		_, err = w.tryUp(t.Context(), file, optup.Replace([]string{survivor}))
		require.Error(t, err)
	})
	assert.NotContains(t, output, "wipes itself")
	assert.Contains(t, output, "one-cp-1 is left as it is: it has the cluster's only etcd data, and the other control planes "+
		"(one-cp-2, one-cp-3) have none and wait")
	assert.Equal(t, boots, w.bootTimes(), "no machine was changed")
	assert.Len(t, w.etcdMachines(), 1)
}

// TestNothingChangesWithoutEtcd: the only control plane was lost and created again, and waits for a restore. A change
// that restarts the worker, whose pods nobody could move, waits as well.
func TestNothingChangesWithoutEtcd(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	w.setGateTimeout("20s")

	s := w.stack(1, 1)
	w.up(s.yaml(t))

	w.removeVM(w.vm("one-cp-1").ID)

	refused := func(why string) {
		before := w.bootTimes()["one-general-1"]
		output := w.outputOf(func() {
			_, err := w.tryUp(t.Context(), s.yaml(t))
			require.Error(t, err)
		})
		assert.Contains(t, output, why)
		assert.Equal(t, before, w.bootTimes()["one-general-1"], "it has not restarted")
	}

	_, err := w.tryUp(t.Context(), s.yaml(t), optup.Refresh())
	require.Error(t, err)
	assert.Contains(t, w.output(), "none of its control planes (one-cp-1) has etcd data")

	const lost = "one-general-1 is not changed: its cluster was bootstrapped, and no control plane (one-cp-1) has etcd data"

	s.Clusters[0].WorkerMemory = 5120

	refused(lost)
	refused(lost)
}
