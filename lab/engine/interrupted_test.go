package engine_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
)

// interruptionPoints are moments of an up.
func interruptionPoints() map[string]func(w *world) bool {
	return map[string]func(w *world) bool{
		"while images are downloaded": func(w *world) bool { return w.hasTask("download") },
		"while templates are built":   func(w *world) bool { return w.hasDescription(" state=building ") },
		"while nodes are cloned":      func(w *world) bool { return w.hasTask("qmclone") },
		"while machines boot":         func(w *world) bool { return len(w.lab.Machines.Status()) > 1 },
		"after the bootstrap":         func(w *world) bool { return len(w.etcdMachines()) > 0 },
	}
}

// TestInterruptedRuns interrupts an up at different moments, as Ctrl-C does; the next up completes it.
func TestInterruptedRuns(t *testing.T) {
	t.Parallel()

	for moment, reached := range interruptionPoints() {
		t.Run(moment, func(t *testing.T) {
			t.Parallel()

			w := newWorld(t, testSpeed/4)
			w.options.NeverKilled = false
			s := w.stack(1, 2)

			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()

			w.when(ctx, reached, cancel)

			_, err := w.tryUp(ctx, s.yaml(t))
			require.Error(t, err, "the run ended before it was interrupted")

			w.up(s.yaml(t))
			w.requireComplete(s.yaml(t))
		})
	}
}

// TestKilledRuns kills an up at different moments as `kill -9` does, which its plugins survive, and once with them, as
// a power cut does. Then it does what a user does: `talos-proxmox recover` and `up --refresh`.
func TestKilledRuns(t *testing.T) {
	t.Parallel()

	kill := func(name, moment string, plugins bool) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			w := newWorld(t, testSpeed/4)
			s := w.stack(1, 2)

			w.killedUp(s.yaml(t), interruptionPoints()[moment], plugins)
			w.recover()
			w.requireRecovered(s.yaml(t))

			w.up(s.yaml(t), optup.Refresh())
			w.requireComplete(s.yaml(t))
		})
	}

	for moment := range interruptionPoints() {
		kill("alone "+moment, moment, false)
	}

	kill("with its plugins while nodes are cloned", "while nodes are cloned", true)
}

// TestKilledRunsOfPreparation kills an up during the preparation of a host, and with its plugins while the host
// reboots.
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
			text := w.gpuStackFile(t, "whenIdle")

			w.killedUp(text, kill.reached, kill.plugins)
			w.recover()
			w.requireRecovered(text)
			w.awaitHost("pve1")

			w.up(text, optup.Refresh())
			assert.Equal(t, false, w.hostOutput("pve1")["rebootRequired"])
			assert.Equal(t, map[string]int{"one-cp-1": firstControlPlane, "one-gpu-1": 4000}, w.machines())

			w.up(text, optup.ExpectNoChanges())
			w.destroy(text)
			w.requireEmpty()
		})
	}
}

// hasDescription reports whether a VM's description has these words.
func (w *world) hasDescription(words string) bool {
	return slices.ContainsFunc(w.lab.Data.VMs(), func(vm datacentre.VM) bool {
		return strings.Contains(vm.Config["description"], words)
	})
}

func (w *world) hasTask(kind string) bool {
	return slices.ContainsFunc(w.lab.Data.Tasks(), func(task datacentre.Task) bool {
		return strings.Contains(task.Type, kind)
	})
}

// TestVersionsThatArePutBack: an upgrade is cut off after its first node, and the file is put back. The run does not
// call that fine: it names the node, which runs a newer version, and an upgrade to the newer one goes on.
func TestVersionsThatArePutBack(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	older := w.stack(1, 2)
	older.Version = "v1.14.3"
	newer := older
	newer.Version = "v1.14.4"

	w.up(older.yaml(t))
	w.killedUp(newer.yaml(t), func(w *world) bool {
		return strings.Contains(w.output(), ": upgrade: is done")
	}, true)
	w.recover()

	_, err := w.tryUp(t.Context(), older.yaml(t))
	require.Error(t, err)
	assert.Contains(t, w.output(), "one-cp-1 runs Talos v1.14.4, and v1.14.3 is older, and downgrades must be allowed; set the running version")

	w.up(newer.yaml(t))
	assert.Contains(t, w.output(), "one-general-2: upgrade: is done")
}

// TestFailedTasks lets the tasks fail that create images and templates: the error has Proxmox' message, and the next up
// completes. TestErrorsOfClones is about machines.
func TestFailedTasks(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testSpeed)
	s := w.stack(1, 1)

	for _, fault := range []datacentre.Fault{
		{Task: "download", Message: "download failed: 503 Service Unavailable"},
		{Task: "qmcreate", Message: "unable to create VM: storage 'local-lvm' is not online"},
	} {
		removeFault := w.addFault(fault)
		assert.Contains(t, w.failedUp(s.yaml(t)), fault.Message)
		removeFault()
	}

	w.up(s.yaml(t), optup.Refresh()) // without it a machine that did not start counts as running
	w.requireRunning(2)
	w.up(s.yaml(t), optup.ExpectNoChanges())
	w.destroy(s.yaml(t))
	w.requireEmpty()
}
