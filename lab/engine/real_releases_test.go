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

// TestRealReleases brings a cluster with a GPU worker over all supported releases by edits of its stack file alone,
// under pods that a budget keeps and users of the API: Talos 1.12 with Kubernetes 1.35 to Talos 1.14 with Kubernetes
// 1.37, with another schematic at the last step. On the way the program, talosops and a machine are killed once each,
// and one more up goes on. The cluster keeps the contract that it began with.
func TestRealReleases(t *testing.T) {
	t.Parallel()

	w := realWorld(t)
	s := stack{Network: w.network, Clusters: []cluster{one(3, 2)}}
	at := func(talos, kubernetes string) string {
		s.Version = talos
		file := strings.Replace(s.yaml(t), "kubernetesVersion: v1.37.2", "kubernetesVersion: "+kubernetes, 1)

		return withGPU(file, w.network)
	}
	withTools := func(file string) string {
		return strings.Replace(file, "extensions: [qemu-guest-agent", "extensions: [iscsi-tools, qemu-guest-agent", 1)
	}

	w.up(at("v1.12.6", "v1.35.0"))

	k := workloadOn(t, w)
	k.withCNI(6)
	k.deploy("web", 3, 2)

	users, members := w.patrols(t), w.etcdIDs()

	_, err := w.preview(at("v1.14.4", "v1.35.0"))
	require.Error(t, err)
	assert.Contains(t, w.said(), "set the latest patch of v1.13 first")

	for _, step := range []struct {
		talos, kubernetes, file string
		breaks                  func(file, talos string)
	}{
		{"v1.13.9", "v1.36.1", at("v1.13.9", "v1.36.1"), w.breaksRuns},
		{"v1.14.4", "v1.37.1", withTools(at("v1.14.4", "v1.37.1")), w.breaksMachine},
	} {
		step.breaks(step.file, step.talos)

		said := w.since(func() { w.up(step.file, optup.Refresh()) })

		assert.NotContains(t, said, "one-cp-1: upgrade: has installed", "it runs its image already")

		versions := versionsOf(t, w.outputs(), "one")
		assert.Equal(t, step.talos, versions["talos"])
		assert.Equal(t, step.kubernetes, versions["kubernetes"])
		assert.Empty(t, versions["differences"], "the schematic is that of the file as well")

		for _, m := range w.lab.Machines.Status() {
			assert.Equal(t, step.talos, m.Version, m.Name)
		}

		assert.Equal(t, members, w.etcdIDs(), "no member left or joined")
		assert.Equal(t, 6, k.ready(), "all nodes take pods")
		requireOffers(t, w.outputs(), "one-gpu-1", 1)
	}

	w.requireHealth(t)
	users.report()
	assert.Equal(t, "v1.12", versionsOf(t, w.outputs(), "one")["contract"])
}

// breaksRuns has an up of a new Talos and Kubernetes killed while Talos is upgraded, and the next one, with its
// talosops, while Kubernetes is.
func (w *world) breaksRuns(file, talos string) {
	w.t.Helper()

	w.killed(file, func(w *world) bool { return w.runs("one-cp-1", talos) && w.stage("one-cp-2") != "running" }, true)
	w.recover()

	said := len(w.said())
	w.killed(file, func(w *world) bool {
		if !strings.Contains(w.said()[said:], "one-cp-2: kube-apiserver: ") {
			return false
		}

		w.killCommands("talosops")

		return true
	}, true)
	w.recover()
}

// breaksMachine cuts the power of a control plane in the middle of its upgrade, which fails for it, and starts it
// again.
func (w *world) breaksMachine(file, talos string) {
	w.t.Helper()

	usual := w.options.TalosOps
	w.verbsWithin("4m", "upgrade")

	second, found := w.lab.Data.VM(w.machines()["one-cp-2"])
	require.True(w.t, found)

	under := func(w *world) bool { return w.runs("one-cp-1", talos) && w.stage("one-cp-2") != "running" }
	w.when(w.t.Context(), under, func() {
		_, err := w.lab.Data.Stop(labRoot, second.Host, second.ID)
		assert.NoError(w.t, err)
	})

	assert.Contains(w.t, w.fails(file), "one-cp-2: ")
	assert.False(w.t, w.runs("one-cp-3", talos), "a failure at one machine stops the rest")

	w.options.TalosOps = usual
	w.do(w.lab.Data.Start(labRoot, second.Host, second.ID))
}

// runs says whether a machine runs a version of Talos.
func (w *world) runs(name, version string) bool {
	for _, m := range w.lab.Machines.Status() {
		if m.Name == name {
			return m.Version == version && m.Stage == "running"
		}
	}

	return false
}

// stage is that of a machine; empty while it is off.
func (w *world) stage(name string) string {
	for _, m := range w.lab.Machines.Status() {
		if m.Name == name {
			return m.Stage
		}
	}

	return ""
}

// etcdIDs are the members of etcd by machine.
func (w *world) etcdIDs() map[string]string {
	ids := map[string]string{}

	for _, m := range w.lab.Machines.Status() {
		if m.EtcdMember != "" {
			ids[m.Name] = m.EtcdMember
		}
	}

	return ids
}
