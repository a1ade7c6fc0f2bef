package engine_test

import (
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// withGPU gives a stack's first host a GPU and its cluster a worker that has it.
func withGPU(file, network string) string {
	return strings.NewReplacer(
		"{name: pve1, address: "+network+".0.11}", "{name: pve1, address: "+network+
			".0.11, prep: {reboot: whenIdle}, gpus: [{name: rtx4000, pci: '01:00', generation: ada}]}",
		"      workers:\n",
		"      gpuWorkers:\n        - {name: gpu, count: 1, gpu: rtx4000, memoryMiB: 8192, diskGiB: 20}\n      workers:\n",
	).Replace(file)
}

// TestRealReleases upgrades a cluster with a GPU worker through all supported releases by edits of its stack file
// alone, with pods under a disruption budget and users of the API: Talos 1.12 with Kubernetes 1.35 to Talos 1.14 with
// Kubernetes 1.37, and another schematic at the last step. On the way the program, talosops and a machine are killed
// once each, and one more up resumes. The cluster keeps its original version contract.
func TestRealReleases(t *testing.T) {
	t.Parallel()

	w := realWorld(t)
	s := w.stack(3, 2)
	at := func(talos, kubernetes string) string {
		s.Version = talos
		file := strings.Replace(s.yaml(t), "kubernetesVersion: v1.37.2", "kubernetesVersion: "+kubernetes, 1)

		return withGPU(file, w.network)
	}
	withTools := func(file string) string {
		return strings.Replace(file, "extensions: [qemu-guest-agent", "extensions: [iscsi-tools, qemu-guest-agent", 1)
	}

	w.up(at("v1.12.6", "v1.35.0"))

	k := newWorkload(t, w)
	k.withCNI(6)
	k.deploy("web", 3, 2)

	users, members := w.probeAPI(t), w.etcdMembers()

	_, err := w.preview(at("v1.14.4", "v1.35.0"))
	require.Error(t, err)
	assert.Contains(t, w.output(), "set the latest patch of v1.13 first")

	for _, step := range []struct {
		talos, kubernetes, file string
		disrupt                 func(file, talos string)
	}{
		{"v1.13.9", "v1.36.1", at("v1.13.9", "v1.36.1"), w.killUpgradeRuns},
		{"v1.14.4", "v1.37.1", withTools(at("v1.14.4", "v1.37.1")), w.cutPowerDuringUpgrade},
	} {
		step.disrupt(step.file, step.talos)

		output := w.outputOf(func() { w.up(step.file, optup.Refresh()) })

		assert.NotContains(t, output, "one-cp-1: upgrade: has installed", "it already runs its image")

		versions := w.versions()
		assert.Equal(t, step.talos, versions["talos"])
		assert.Equal(t, step.kubernetes, versions["kubernetes"])
		assert.Empty(t, versions["differences"], "the schematic is that of the file as well")

		for _, m := range w.lab.Machines.Status() {
			assert.Equal(t, step.talos, m.Version, m.Name)
		}

		assert.Equal(t, members, w.etcdMembers(), "no member left or joined")
		assert.Equal(t, 6, k.readyNodes(), "all nodes take pods")
		w.requireGPUs("one-gpu-1", 1)
	}

	w.requireHealth(t)
	users.report()
	assert.Equal(t, "v1.12", w.versions()["contract"])
}

// killUpgradeRuns kills an up of a new Talos and Kubernetes while it upgrades Talos, and the next one, with its
// talosops, while it upgrades Kubernetes.
func (w *world) killUpgradeRuns(file, talos string) {
	w.t.Helper()

	w.killedUp(file, func(w *world) bool {
		return w.runsTalos("one-cp-1", talos) && w.machineStatus("one-cp-2").Stage != "running"
	}, true)
	w.recover()

	before := len(w.output())
	w.killedUp(file, func(w *world) bool {
		if !strings.Contains(w.output()[before:], "one-cp-2: kube-apiserver: ") {
			return false
		}

		w.killProgram("talosops")

		return true
	}, true)
	w.recover()
}

// cutPowerDuringUpgrade stops a control plane in the middle of its upgrade, which fails, and starts it again.
func (w *world) cutPowerDuringUpgrade(file, talos string) {
	w.t.Helper()

	usual := w.options.TalosOps
	w.setVerbTimeout("4m", "upgrade")

	second, found := w.lab.Data.VM(w.machines()["one-cp-2"])
	require.True(w.t, found)

	upgrading := func(w *world) bool {
		return w.runsTalos("one-cp-1", talos) && w.machineStatus("one-cp-2").Stage != "running"
	}
	w.when(w.t.Context(), upgrading, func() {
		_, err := w.lab.Data.Stop(labRoot, second.Host, second.ID)
		assert.NoError(w.t, err)
	})

	assert.Contains(w.t, w.failedUp(file), "one-cp-2: ")
	assert.False(w.t, w.runsTalos("one-cp-3", talos), "a failure at one machine stops the rest")

	w.options.TalosOps = usual
	w.startVM(second.ID)
}
