package engine_test

import (
	"context"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
)

// moments are points of an up at which it is interrupted.
func moments() map[string]func(w *world) bool {
	return map[string]func(w *world) bool{
		"while images are downloaded": func(w *world) bool { return w.taskSeen("download") },
		"while templates are built":   func(w *world) bool { return w.described(" state=building ") },
		"while nodes are cloned":      func(w *world) bool { return w.taskSeen("qmclone") },
		"while machines boot":         func(w *world) bool { return len(w.lab.Machines.Status()) > 1 },
		"after the bootstrap":         func(w *world) bool { return w.bootstrapped() },
	}
}

// TestInterruptedRuns interrupts an up at different moments, as Ctrl-C does, and sees the next up finish the job.
func TestInterruptedRuns(t *testing.T) {
	t.Parallel()

	for moment, reached := range moments() {
		t.Run(moment, func(t *testing.T) {
			t.Parallel()

			w := newWorld(t, testSpeed/4)
			s := stack{Network: w.network, Clusters: []cluster{one(1, 2)}}

			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()

			w.when(ctx, reached, cancel)

			_, err := w.tryUp(ctx, s.yaml(t))
			require.Error(t, err, "the run ended before it was interrupted")

			w.up(s.yaml(t))
			w.requireWhole(s.yaml(t))
		})
	}
}

// TestKilledRuns kills an up at different moments as `kill -9` does, which its plugins outlive, and once with them, as
// a power cut does. Then it does what a user does: `talos-proxmox recover` and `up --refresh`.
func TestKilledRuns(t *testing.T) {
	t.Parallel()

	kill := func(name, moment string, plugins bool) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			w := newWorld(t, testSpeed/4)
			s := stack{Network: w.network, Clusters: []cluster{one(1, 2)}}

			w.killed(s.yaml(t), moments()[moment], plugins)
			w.recover()
			w.requireRecovered(s.yaml(t))

			w.up(s.yaml(t), optup.Refresh())
			w.requireWhole(s.yaml(t))
		})
	}

	for moment := range moments() {
		kill("alone "+moment, moment, false)
	}

	kill("with its plugins while nodes are cloned", "while nodes are cloned", true)
}

// TestKilledRunsOfPreparation kills an up while a host is prepared, and with its plugins while the host reboots.
func TestKilledRunsOfPreparation(t *testing.T) {
	t.Parallel()

	for moment, kill := range map[string]struct {
		reached func(w *world) bool
		plugins bool
	}{
		"while a host is prepared": {
			func(w *world) bool { return w.readHost("pve1", "etc/modprobe.d/vfio.conf") != "" }, false,
		},
		"while a host reboots": {func(w *world) bool {
			h, _ := w.lab.Data.Host("pve1")

			return !h.Online
		}, true},
	} {
		t.Run(moment, func(t *testing.T) {
			t.Parallel()

			w := newWorld(t, testSpeed/4)
			text := w.gpuMachine(t, "whenIdle")

			w.killed(text, kill.reached, kill.plugins)
			w.recover()
			w.requireRecovered(text)
			w.awaitHost("pve1")

			w.up(text, optup.Refresh())
			assert.Equal(t, false, hostOutput(t, w.outputs(), "pve1")["rebootRequired"])
			assert.Equal(t, map[string]int{"one-cp-1": firstControlPlane, "one-gpu-1": 4000}, w.machines())

			w.up(text, optup.ExpectNoChanges())
			w.destroy(text)
			w.requireEmpty()
		})
	}
}

func (w *world) bootstrapped() bool {
	for _, m := range w.lab.Machines.Status() {
		if m.EtcdMember != "" {
			return true
		}
	}

	return false
}

// described tells whether a VM's description has these words.
func (w *world) described(words string) bool {
	for _, vm := range w.lab.Data.VMs() {
		if strings.Contains(vm.Config["description"], words) {
			return true
		}
	}

	return false
}

func (w *world) taskSeen(kind string) bool {
	for _, task := range w.lab.Data.Tasks() {
		if strings.Contains(task.Type, kind) {
			return true
		}
	}

	return false
}

// TestFailedTasks lets tasks fail that make what machines are made from: the message says what Proxmox said, and the
// next up finishes the job. TestErrorsOfClones has those of machines.
func TestFailedTasks(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testSpeed)
	s := stack{Network: w.network, Clusters: []cluster{one(1, 1)}}

	for _, fault := range []datacentre.Fault{
		{Task: "download", Message: "download failed: 503 Service Unavailable"},
		{Task: "qmcreate", Message: "unable to create VM: storage 'local-lvm' is not online"},
	} {
		_, err := w.lab.Data.AddFault(fault)
		require.NoError(t, err)
		assert.Contains(t, w.fails(s.yaml(t)), fault.Message)
		require.NoError(t, w.lab.Data.ClearFaults())
	}

	w.up(s.yaml(t), optup.Refresh()) // without it a machine that was made but did not start passes for a running one
	w.requireRunning(2)
	w.up(s.yaml(t), optup.ExpectNoChanges())
	w.destroy(s.yaml(t))
	w.requireEmpty()
}
