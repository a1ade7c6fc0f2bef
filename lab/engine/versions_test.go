package engine_test

import (
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/siderolabs/talos/pkg/machinery/client"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/stacks"
)

// TestVersionsAreWhatRuns changes the version of a template, which leaves running machines as they are, upgrades them
// as docs/upgrades.md says, and sees the outputs follow at each step.
func TestVersionsAreWhatRuns(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	s := stack{Network: w.network, Version: "v1.12.5", Clusters: []cluster{one(1, 1)}}

	w.up(s.yaml(t))
	versions := versionsOf(t, w.outputs(), "one")
	assert.Equal(t, "v1.12.5", versions["talos"])
	assert.Equal(t, "v1.35.0", versions["kubernetes"])
	assert.Empty(t, versions["differences"])

	// Planned is not what runs: that is said, and no run fails for it.
	s.Version = "v1.12.6"
	done := w.up(s.yaml(t))
	assert.Contains(t, done, "Command one-healthy", "the gate runs again when other versions are planned")

	behind := map[string]any{
		"one-cp-1": "runs Talos v1.12.5 (planned: v1.12.6)", "one-general-1": "runs Talos v1.12.5 (planned: v1.12.6)",
	}
	versions = versionsOf(t, w.outputs(), "one")
	assert.Equal(t, "v1.12.5", versions["talos"])
	assert.Equal(t, behind, versions["differences"])
	assert.Contains(t, w.said(), "warning: not every node of cluster one runs what is planned for it:\n")
	assert.Contains(t, w.said(), " one-cp-1 runs Talos v1.12.5 (planned: v1.12.6)\n")

	// One machine at a time.
	talosconfig := output(t, w.outputs(), stacks.Talosconfigs, "one")
	w.upgrade(talosconfig, w.network+".1.10", "v1.12.6")
	done = w.up(s.yaml(t), optup.ExpectNoChanges())
	assert.Empty(t, done)
	versions = versionsOf(t, w.outputs(), "one")
	assert.Equal(t, "v1.12.5, v1.12.6", versions["talos"])
	assert.Equal(t, map[string]any{"one-general-1": behind["one-general-1"]}, versions["differences"])

	w.upgrade(talosconfig, w.network+".1.20", "v1.12.6")
	done = w.up(s.yaml(t), optup.ExpectNoChanges())
	assert.Empty(t, done)
	versions = versionsOf(t, w.outputs(), "one")
	assert.Equal(t, "v1.12.6", versions["talos"])
	assert.Empty(t, versions["differences"])
}

func versionsOf(t *testing.T, outputs auto.OutputMap, cluster string) map[string]any {
	t.Helper()
	require.False(t, outputs[stacks.Versions].Secret)

	versions, ok := outputs[stacks.Versions].Value.(map[string]any)[cluster].(map[string]any)
	require.True(t, ok, "%v", outputs[stacks.Versions].Value)

	return versions
}

// upgrade upgrades a machine to the installer image that its configuration names, and waits until it runs it.
func (w *world) upgrade(talosconfig, address, version string) {
	w.t.Helper()

	parsed, err := clientconfig.FromString(talosconfig)
	require.NoError(w.t, err)

	c, err := client.New(w.t.Context(), client.WithConfig(parsed), client.WithEndpoints(address))
	require.NoError(w.t, err)

	defer c.Close() //nolint:errcheck

	machineConfig, err := safe.StateGetByID[*config.MachineConfig](w.t.Context(), c.COSI, config.ActiveID)
	require.NoError(w.t, err)

	image := machineConfig.Config().Machine().Install().Image()
	require.Contains(w.t, image, version)

	_, err = c.Upgrade(w.t.Context(), image, false, false)
	require.NoError(w.t, err)
	require.Eventually(w.t, func() bool {
		answer, err := c.Version(w.t.Context())

		return err == nil && answer.GetMessages()[0].GetVersion().GetTag() == version && w.allRun()
	}, within, 100*time.Millisecond, "%s runs %s", address, version)
}

func (w *world) allRun() bool {
	for _, m := range w.lab.Machines.Status() {
		if m.Stage != "running" {
			return false
		}
	}

	return true
}
