package engine_test

import (
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/stacks"
)

// TestTalosIsUpgraded changes the version of a template, to which the machines that run are brought one after the
// other, and sees the outputs follow; a step that Talos is not upgraded by is refused in the preview.
func TestTalosIsUpgraded(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	s := stack{Network: w.network, Version: "v1.14.3", Clusters: []cluster{one(1, 1)}}
	file := func() string { // with a Kubernetes that is not the newest
		return strings.Replace(s.yaml(t), "kubernetesVersion: v1.37.2", "kubernetesVersion: v1.36.1", 1)
	}

	w.up(file())
	versions := versionsOf(t, w.outputs(), "one")
	assert.Equal(t, "v1.14.3", versions["talos"])
	assert.Equal(t, "v1.36.1", versions["kubernetes"])
	assert.Empty(t, versions["differences"])
	assert.Contains(t, w.said(), "no node answers: there is no cluster yet, and nothing is upgraded")

	s.Version = "v1.14.2"
	said := w.refusedPreview(file())
	assert.Contains(t, said, "templates.talos.version: v1.14.2 cannot follow Talos v1.14.3, which one-cp-1 runs: it is older")

	s.Version = "v1.14.4"
	done := w.up(file())
	assert.Equal(t, "update", done["Command one-talos"])
	assert.Contains(t, done, "Command one-healthy", "the gate runs again when other versions are planned")
	assert.Contains(t, w.said(), "one-cp-1, one-general-1 are upgraded in turn: Talos v1.14.3 → v1.14.4 (templates.talos.version)")

	for _, m := range w.lab.Machines.Status() {
		assert.Equal(t, "v1.14.4", m.Version, m.Name)
	}

	versions = versionsOf(t, w.outputs(), "one")
	assert.Equal(t, "v1.14.4", versions["talos"])
	assert.Empty(t, versions["differences"])
	w.requireInTurn("one-cp-1", "one-general-1")

	assert.Empty(t, w.up(file(), optup.ExpectNoChanges()))

	// Another schematic of the same version, which the preview names.
	preview, err := w.preview(strings.Replace(file(), "[qemu-guest-agent", "[iscsi-tools, qemu-guest-agent", 1))
	require.NoError(t, err)
	assert.Contains(t, preview.StdErr+w.said(),
		"one-cp-1, one-general-1 are upgraded in turn: another schematic (templates.talos.extensions)")

	// One worker more finds every node as it has to be.
	before := len(w.said())
	s.Clusters = []cluster{one(1, 2)}
	done = w.up(file())
	assert.Equal(t, "update", done["Command one-talos"])
	assert.NotContains(t, w.said()[before:], "has installed")
	assert.Contains(t, w.said()[before:], "one-general-2: upgrade: is new, and is left alone")

	// The model of Kubernetes cannot be upgraded, which ends the run before anything is changed; an upgrade on real
	// Kubernetes is TestRealKubernetesUpgrade.
	said = w.fails(s.yaml(t))
	assert.Contains(t, said, "the Kubernetes API cannot be upgraded from v1.36.1 to v1.37.2: the lab's model of Kubernetes")
	assert.Contains(t, said, "make up KUBERNETES=real")
	w.up(file(), optup.ExpectNoChanges())
}

// requireInTurn checks that machines were upgraded in this order, each after the one before was done.
func (w *world) requireInTurn(names ...string) {
	w.t.Helper()

	said, at := w.said(), 0

	for _, name := range names {
		for _, step := range []string{"has installed ", "restarts", "runs Talos ", "is done"} {
			found := strings.Index(said[at:], name+": upgrade: "+step)
			require.GreaterOrEqual(w.t, found, 0, "%s %s is not said after what was before it:\n%s", name, step, said)

			at += found
		}
	}
}

func versionsOf(t *testing.T, outputs auto.OutputMap, cluster string) map[string]any {
	t.Helper()
	require.False(t, outputs[stacks.Versions].Secret)

	versions, ok := outputs[stacks.Versions].Value.(map[string]any)[cluster].(map[string]any)
	require.True(t, ok, "%v", outputs[stacks.Versions].Value)

	return versions
}
