package engine_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/stacks"
)

// TestRealTalosUpgrade brings three control planes and two workers to another version and another schematic, under pods
// that a budget keeps and users of the API. The run is killed while the second control plane is on its way, and
// talosops when it says its next word; one more brings all of them there.
func TestRealTalosUpgrade(t *testing.T) {
	t.Parallel()

	w := realWorld(t)
	s := stack{Network: w.network, Version: "v1.12.1", Clusters: []cluster{one(3, 2)}}
	w.up(s.yaml(t))

	k := workloadOn(t, w)
	k.withCNI(5)
	k.deploy("web", 3, 2)

	users, members := w.patrols(t), w.etcdIDs()

	s.Version = "v1.12.6"
	after := strings.Replace(s.yaml(t), "extensions: [qemu-guest-agent", "extensions: [iscsi-tools, qemu-guest-agent", 1)

	w.killed(after, func(w *world) bool { return w.runs("one-cp-1", "v1.12.6") && w.stage("one-cp-2") != "running" }, true)
	w.recover()

	before := len(w.said())

	done := w.up(after, optup.Refresh())
	said := w.said()[before:]

	assert.Equal(t, "update", done["Command one-talos"])
	assert.NotContains(t, said, "one-cp-1: upgrade: installs", "it runs its image already")
	assert.Contains(t, said, "one-general-2: upgrade: is done")
	assert.Equal(t, members, w.etcdIDs(), "no member left or joined")

	for _, m := range w.lab.Machines.Status() {
		assert.Equal(t, "v1.12.6", m.Version, m.Name)
	}

	assert.Equal(t, 5, k.ready(), "all nodes take pods")
	users.report()

	versions := versionsOf(t, w.outputs(), "one")
	assert.Equal(t, "v1.12.6", versions["talos"])
	assert.Empty(t, versions["differences"], "the schematic is the new one as well")

	w.requireHealth(t)
	w.up(after, optup.ExpectNoChanges())
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

// requireHealth runs `talosctl health` of cluster one.
func (w *world) requireHealth(t *testing.T) {
	t.Helper()

	talosctl, err := filepath.Abs(filepath.Join(project, ".bin", "talosctl"))
	require.NoError(t, err)

	config := filepath.Join(w.dir, "talosconfig")
	require.NoError(t, os.WriteFile(config, []byte(output(t, w.outputs(), stacks.Talosconfigs, "one")), 0o600))

	out, err := exec.CommandContext(t.Context(), talosctl, "--talosconfig", config, "--nodes", w.network+".1.10",
		"health", "--wait-timeout", "2m").CombinedOutput()
	require.NoError(t, err, string(out))
}
