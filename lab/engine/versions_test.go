package engine_test

import (
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/stacks"
)

// TestTalosIsUpgraded changes the version of a template: running machines are upgraded one after the other, and the
// outputs follow. The preview refuses a step that Talos does not support.
func TestTalosIsUpgraded(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	s := stack{Network: w.network, Version: "v1.14.3", Clusters: []cluster{clusterOne(1, 1)}}
	file := func() string { // with a Kubernetes that is not the newest
		return strings.Replace(s.yaml(t), "kubernetesVersion: v1.37.2", "kubernetesVersion: v1.36.1", 1)
	}

	w.up(file())
	versions := w.versions()
	assert.Equal(t, "v1.14.3", versions["talos"])
	assert.Equal(t, "v1.36.1", versions["kubernetes"])
	assert.Empty(t, versions["differences"])
	assert.Contains(t, w.output(), "no node answers: there is no cluster yet, and nothing is upgraded")

	s.Version = "v1.14.2"
	output := w.failedPreview(file())
	assert.Contains(t, output, "templates.talos.version: v1.14.2 cannot follow Talos v1.14.3, which one-cp-1 runs: it is older")

	s.Version = "v1.14.4"
	done := w.up(file())
	assert.Equal(t, "update", done["Command one-talos"])
	assert.Contains(t, done, "Command one-healthy", "the gate runs again when other versions are planned")
	assert.Contains(t, w.output(), "one-cp-1, one-general-1 are upgraded in turn: Talos v1.14.3 → v1.14.4 (templates.talos.version)")
	assert.Contains(t, w.output(), onlyOne)

	for _, m := range w.lab.Machines.Status() {
		assert.Equal(t, "v1.14.4", m.Version, m.Name)
	}

	versions = w.versions()
	assert.Equal(t, "v1.14.4", versions["talos"])
	assert.Empty(t, versions["differences"])
	w.requireUpgradedInTurn("one-cp-1", "one-general-1")

	assert.Empty(t, w.up(file(), optup.ExpectNoChanges()))

	// Another schematic of the same version, which the preview names.
	preview, err := w.preview(strings.Replace(file(), "[qemu-guest-agent", "[iscsi-tools, qemu-guest-agent", 1))
	require.NoError(t, err)
	assert.Contains(t, preview.StdErr+w.output(),
		"one-cp-1, one-general-1 are upgraded in turn: another schematic (templates.talos.extensions)")

	// One more worker: every other node runs the planned version.
	s.Clusters = []cluster{clusterOne(1, 2)}
	output = w.outputOf(func() { done = w.up(file()) })

	assert.Equal(t, "update", done["Command one-talos"])
	assert.NotContains(t, output, "has installed")
	assert.Contains(t, output, "one-general-2: upgrade: is new, and is left alone")

	// The model of Kubernetes cannot be upgraded: the run ends before it changes anything. TestRealKubernetesUpgrade
	// upgrades real Kubernetes.
	output = w.failedUp(s.yaml(t))
	assert.Contains(t, output, "cluster one: Kubernetes v1.36.1 → v1.37.2 (clusters[0].kubernetesVersion): the control planes' pods")
	assert.Contains(t, output, "the Kubernetes API cannot be upgraded from v1.36.1 to v1.37.2: the lab's model of Kubernetes")
	assert.Contains(t, output, "make up KUBERNETES=real")

	// The refused upgrade might have begun, so the upgrades compare the nodes with the former versions once.
	done = w.up(file())
	assert.Equal(t, steps{"Command one-talos": "update", "Command one-kubernetes": "update"}, done)
	w.up(file(), optup.ExpectNoChanges())
}

// requireUpgradedInTurn checks that machines were upgraded in this order, each after the previous one was done.
func (w *world) requireUpgradedInTurn(names ...string) {
	w.t.Helper()

	output, at := w.output(), 0

	for _, name := range names {
		for _, step := range []string{"has installed ", "restarts", "runs Talos ", "is done"} {
			found := strings.Index(output[at:], name+": upgrade: "+step)
			require.GreaterOrEqual(w.t, found, 0, "%s %s is not printed after the previous step:\n%s", name, step, output)

			at += found
		}
	}
}

// versions returns the output about the versions of cluster one.
func (w *world) versions() map[string]any {
	w.t.Helper()

	output := w.outputs()[stacks.Versions]
	require.False(w.t, output.Secret)

	versions, ok := output.Value.(map[string]any)["one"].(map[string]any)
	require.True(w.t, ok, "%v", output.Value)

	return versions
}
