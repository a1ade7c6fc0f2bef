package engine_test

import (
	"encoding/json"
	"errors"
	"os/exec"
	"testing"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/operations"
	"talos-proxmox/internal/request"
)

// commandOutput runs talos-proxmox, and returns its output and its exit status.
func (w *world) commandOutput(arguments ...string) (stdout, stderr string, status int) {
	w.t.Helper()

	cmd := w.command(arguments...)

	out, err := cmd.Output()

	var ended *exec.ExitError
	if errors.As(err, &ended) {
		return string(out), string(ended.Stderr), ended.ExitCode()
	}

	require.NoError(w.t, err)

	return string(out), "", 0
}

// clusterStatus returns what `talos-proxmox status` prints about the only cluster, and its exit status.
func (w *world) clusterStatus() (request.ClusterStatus, int) {
	w.t.Helper()

	out, output, status := w.commandOutput("status", w.options.Stack, "--output", "json")

	var s request.ClusterStatus
	require.NoError(w.t, json.Unmarshal([]byte(out), &s), output)

	return s, status
}

// drift returns what `talos-proxmox drift` reports about nodes.
func (w *world) drift() []request.NodeDifference {
	w.t.Helper()

	out, output, status := w.commandOutput("drift", w.options.Stack, "--nodes", "--output", "json")

	var d struct{ Drift []request.NodeDifference }
	require.NoError(w.t, json.Unmarshal([]byte(out), &d), output)
	require.Equal(w.t, len(d.Drift) > 0, status == operations.StatusAttention, output)

	return d.Drift
}

// patchNode changes a node's machine configuration as a user of talosctl does.
func (w *world) patchNode(talosconfig, address, patch string, mode machine.ApplyConfigurationRequest_Mode) {
	w.t.Helper()

	c := w.talosClient(talosconfig, address)
	defer c.Close() //nolint:errcheck

	active, err := safe.StateGetByID[*config.MachineConfig](w.t.Context(), c.COSI, config.ActiveID)
	require.NoError(w.t, err)

	patches, err := configpatcher.LoadPatches([]string{patch})
	require.NoError(w.t, err)

	patched, err := configpatcher.Apply(configpatcher.WithConfig(active.Provider()), patches)
	require.NoError(w.t, err)

	text, err := patched.Bytes()
	require.NoError(w.t, err)

	_, err = c.ApplyConfiguration(w.t.Context(), &machine.ApplyConfigurationRequest{Data: text, Mode: mode})
	require.NoError(w.t, err)
}

// TestStatusAndDrift checks the reports about a healthy stack, manually changed nodes, and stopped machines.
func TestStatusAndDrift(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	s := stack{Network: w.network, Version: "v1.14.3", Clusters: []cluster{clusterOne(3, 1)}}
	s.Clusters[0].VIP = 0
	w.up(s.yaml(t))

	w.checkStatusOfAHealthyStack()

	// Someone changes a worker, and stages something on a control plane.
	const patch = `{"machine": {"sysctls": {"kernel.hostname": "a secret of mine"}}}`

	worker, controlPlane := w.network+".1.20", w.network+".1.10"
	talosconfig := w.talosconfig()
	w.patchNode(talosconfig, worker, patch, machine.ApplyConfigurationRequest_NO_REBOOT)
	w.patchNode(talosconfig, controlPlane, patch, machine.ApplyConfigurationRequest_STAGED)

	paths := []string{"machine.sysctls"}
	assert.Equal(t, []request.NodeDifference{
		{Node: "one-general-1", Configuration: paths, Cluster: "one"},
	}, w.drift())

	report, status := w.clusterStatus()
	assert.Equal(t, operations.StatusAttention, status)
	assert.Equal(t, []string{
		"one-cp-1: another machine configuration than the running one is on its disk, and takes effect at its next reboot",
		"one-general-1: its machine configuration is not the one that was applied last: " + paths[0],
	}, report.Care.Lines())

	table, got, status := w.commandOutput("status", w.options.Stack)
	assert.Equal(t, operations.StatusAttention, status)
	assert.Contains(t, table, "Cluster one needs care:\n")
	assert.NotContains(t, table+got, "a secret of mine")

	for name, secret := range w.secrets(
		talosconfig, w.kubeconfig(),
	) {
		assert.NotContains(t, table+got, secret, name)
	}

	// Applying the configurations again restarts nothing.
	done := w.up(s.yaml(t), optup.Replace([]string{"**::one-general-1-configuration", "**::one-cp-1-configuration"}))
	assert.Empty(t, vms(done.withOp("update")))
	assert.Empty(t, w.drift())

	report, status = w.clusterStatus()
	assert.Zero(t, status, "%v", report.Care.Lines())

	// The stack's file plans another version.
	changed := s
	changed.Version = "v1.14.4"
	_, err := w.preview(changed.yaml(t))
	require.NoError(t, err)
	require.Len(t, w.drift(), 4)
	assert.Equal(t, "runs Talos v1.14.3 (planned: v1.14.4)", w.drift()[0].Versions)

	_, err = w.preview(s.yaml(t))
	require.NoError(t, err)
	require.Empty(t, w.drift())

	w.checkStatusOfStoppedMachines()
}

func (w *world) checkStatusOfAHealthyStack() {
	t := w.t

	report, status := w.clusterStatus()
	assert.Zero(t, status, "%v", report.Care.Lines())
	assert.Equal(t, request.StatusOK, report.Status)
	assert.Empty(t, report.Care.Lines())
	assert.Len(t, report.Members, 3)
	assert.Len(t, report.Nodes, 4)
	assert.Equal(t, "no CNI", report.Nodes[3].Ready)
	assert.Empty(t, w.drift())

	leaders := 0

	for _, m := range report.Members {
		if m.Leader {
			leaders++
		}
	}

	assert.Equal(t, 1, leaders)
}

// checkStatusOfStoppedMachines: a part that is down hides nothing of the rest.
func (w *world) checkStatusOfStoppedMachines() {
	t := w.t

	third := w.vm("one-cp-3")
	w.stopVM(third.ID)

	report, status := w.clusterStatus()
	assert.Equal(t, operations.StatusAttention, status)
	require.NotEmpty(t, report.Care)
	assert.Contains(t, report.Care.Lines()[0], "one-cp-3: Talos does not answer on "+w.network+".1.12: ")
	assert.Len(t, report.Members, 3)
	require.Len(t, w.drift(), 1)
	assert.Contains(t, w.drift()[0].Unknown, "Talos does not answer")

	for _, name := range []string{"one-cp-1", "one-cp-2", "one-general-1"} {
		vm := w.vm(name)
		w.stopVM(vm.ID)
	}

	report, status = w.clusterStatus()
	assert.Equal(t, operations.StatusUnknown, status)
	assert.Equal(t, request.StatusUnknown, report.Status)

	_, got, status := w.commandOutput("status", "nosuch")
	assert.Equal(t, operations.StatusUnknown, status)
	assert.Contains(t, got, "unable to read stack \"nosuch\"")
}
