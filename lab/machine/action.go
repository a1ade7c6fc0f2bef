package machine

import (
	"context"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"talos-proxmox/lab/image"
)

// action is what the machine's main sequence does next.
type action struct {
	kind  actionKind
	actor string
	// Arguments: the configuration to apply in maintenance mode, the system to upgrade to, the reset request.
	configuration []byte
	system        image.Image
	reset         *machineapi.ResetRequest
	// drain evicts pods first.
	drain bool
}

type actionKind int

const (
	actApply actionKind = iota
	actReboot
	actShutdown
	actReset
	actUpgrade
)

// sequences are Talos' names of the sequences that actions run.
var sequences = map[actionKind]string{
	actApply: "install", actReboot: "reboot", actShutdown: "shutdown", actReset: "reset", actUpgrade: "upgrade",
}

// request passes an action to the main sequence; like Talos, it accepts one at a time.
func (m *machine) request(a action) error {
	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	return m.requestLocked(a)
}

func (m *machine) requestLocked(a action) error {
	if m.busy {
		return status.Error(codes.FailedPrecondition, "locked: another sequence is running; wait until it has ended")
	}

	m.busy = true
	m.logfLocked("[talos] %s via API received. actor id: %s", sequences[a.kind], a.actor)

	m.actions <- a

	return nil
}

// discardActions discards the pending actions of the last boot; the caller holds the lock.
func (m *machine) discardActions() {
	m.busy = false

	select {
	case <-m.actions:
	default:
	}
}

// perform runs a sequence. It returns false if the machine continues as before.
func (m *machine) perform(ctx context.Context, a action) (outcome, bool) {
	m.publishSequence(a.kind, machineapi.SequenceEvent_START, a.actor)

	switch a.kind {
	case actReset:
		return m.performReset(ctx, a)
	case actUpgrade:
		return m.performUpgrade(ctx, a)
	case actShutdown:
		if !m.cordonAndDrain(ctx, a, runtime.MachineStageShuttingDown) {
			return outcome{}, false
		}

		m.stopServices(a.actor)

		return outcome{off: true}, true
	case actReboot, actApply:
		m.ms.mu.Lock()
		m.setStage(runtime.MachineStageRebooting)
		m.ms.mu.Unlock()
	}

	m.stopServices(a.actor)

	return outcome{bootTime: m.durations().Reboot}, true
}

// cordonAndDrain enters a stage, which cordons the node, and drains it. It returns false if that failed and the machine
// continues.
func (m *machine) cordonAndDrain(ctx context.Context, a action, stage runtime.MachineStage) bool {
	m.ms.mu.Lock()
	m.setStage(stage)
	drain := a.drain && m.config != nil && !m.config.K8sNodeConfig().SkipNodeRegistration()
	m.ms.mu.Unlock()

	if !drain {
		return true
	}

	m.publishTask("cordonAndDrainNode", a.actor)

	err := m.kube.drain(ctx)
	if err == nil || ctx.Err() != nil {
		return true
	}

	if a.kind == actReset { // which ignores the failure
		m.Logf("[talos] WARNING: %s", err)

		return true
	}

	m.abortSequence(a, err)

	return false
}

// abortSequence ends a sequence that failed before it changed anything.
func (m *machine) abortSequence(a action, err error) {
	m.ms.mu.Lock()
	m.busy = false
	m.logfLocked("[talos] %s failed: %s", sequences[a.kind], err)
	m.setStage(runtime.MachineStageRunning)
	m.ms.mu.Unlock()
	m.publishSequence(a.kind, machineapi.SequenceEvent_STOP, a.actor)
}

// failSequence fails a sequence that has stopped services: the machine restarts with its current system
// (internal/app/machined/main.go).
func (m *machine) failSequence(ctx context.Context, a action, err error) {
	m.publishFailure(a.kind, a.actor, err)
	m.Logf("[talos] fatal sequencer error in %q sequence: %s", sequences[a.kind], err)
	m.Logf("[talos] rebooting in 10 seconds")
	m.sleep(ctx, failureDelay)
}

// stopServices stops the services, and lets answers in flight arrive.
func (m *machine) stopServices(actor string) {
	m.publishTask("stopAllServices", actor)
	m.listeners.DrainOnClose()
}

// performUpgrade installs the new system beside the state. The machine's API stays up for the first half of the time.
func (m *machine) performUpgrade(ctx context.Context, a action) (outcome, bool) {
	total := m.durations().Upgrade

	if !m.cordonAndDrain(ctx, a, runtime.MachineStageUpgrading) {
		return outcome{}, false
	}

	if !m.sleep(ctx, total/2) {
		return outcome{}, true
	}

	m.ms.mu.Lock()
	_, failure := m.runInstaller(a.system)
	m.ms.mu.Unlock()

	if failure != nil {
		m.failSequence(ctx, a, failure)

		m.stopServices(a.actor)

		return outcome{bootTime: m.durations().Reboot}, true
	}

	m.ms.mu.Lock()
	m.logfLocked("[talos] upgraded to %s (schematic %s)", a.system.Version, a.system.Schematic)
	m.disk.Upgraded = true
	m.replaceSystem(a.system)
	m.setStage(runtime.MachineStageRebooting)
	m.ms.mu.Unlock()

	m.stopServices(a.actor)

	return outcome{bootTime: total - total/2}, true
}

// replaceSystem makes the next boot start another system, and keeps the current one for a rollback; the caller holds
// the lock.
func (m *machine) replaceSystem(system image.Image) {
	previous := m.installed
	previous.State = nil
	m.disk.Previous = &previous
	m.writeSystem(system)
}
