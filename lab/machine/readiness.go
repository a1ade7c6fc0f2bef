package machine

import (
	"fmt"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"

	"talos-proxmox/lab/machine/services"
)

// logfLocked writes to the machine's console; the caller holds the lock.
func (m *machine) logfLocked(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	m.journal.Log(text)
	m.ms.options.Log.Debug(text, "vmid", m.hw.VMID, "machine", m.hw.Name)
}

// Logf is logf for callers without the lock.
func (m *machine) Logf(format string, args ...any) {
	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	m.logfLocked(format, args...)
}

// ReportProblem notes why the machine cannot be reached.
func (m *machine) ReportProblem(format string, args ...any) {
	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	m.problem = fmt.Sprintf(format, args...)
	m.logfLocked("[talos] %s", m.problem)
}

// newServices are the services of a boot, whose changes the machine tells and follows; the caller holds the lock.
func (m *machine) newServices() *services.Services {
	return services.New(
		func() bool { return m.etcd != nil && m.etcd.HasQuorum() },
		func(s *services.Service) {
			m.logfLocked("[talos] service[%s](%s): %s", s.Name, s.State, s.Message())
			m.journal.Publish(s.Event(), "")
			m.finishBoot()
		},
	)
}

// ReportEtcd sets the state of the service etcd, for callers without the lock.
func (m *machine) ReportEtcd(state, message string) {
	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	m.services.Set("etcd", state, message)
}

// startServices brings up what does not depend on other machines; the caller holds the lock.
func (m *machine) startServices() {
	m.services.StartSystem(m.config != nil)
	m.startExtensions()
}

// startExtensions starts the services of extensions, with their documents; the caller holds the lock.
func (m *machine) startExtensions() {
	var names, documents []string

	for _, e := range m.extensions {
		names = append(names, e.Name)
	}

	if m.config != nil {
		for _, c := range m.config.ExtensionServiceConfigs() {
			documents = append(documents, c.Name())
		}
	}

	m.services.StartExtensions(names, documents, m.kernel.Persistenced)
}

func (m *machine) publishSequence(kind actionKind, what machineapi.SequenceEvent_Action, actor string) {
	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	m.journal.Publish(&machineapi.SequenceEvent{Sequence: sequences[kind], Action: what}, actor)
}

// publishFailure tells that a sequence has failed (internal/app/machined/pkg/runtime/v1alpha1/v1alpha1_controller.go).
func (m *machine) publishFailure(kind actionKind, actor string, err error) {
	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	m.journal.Publish(&machineapi.SequenceEvent{
		Sequence: sequences[kind], Action: machineapi.SequenceEvent_NOOP,
		Error: &common.Error{Code: common.Code_FATAL, Message: "sequence failed: " + err.Error()},
	}, actor)
}

func (m *machine) publishTask(task, actor string) {
	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	m.journal.Publish(&machineapi.TaskEvent{Task: task, Action: machineapi.TaskEvent_START}, actor)
}

// eventStages are the event names of the stages.
var eventStages = map[runtime.MachineStage]machineapi.MachineStatusEvent_MachineStage{
	runtime.MachineStageBooting:      machineapi.MachineStatusEvent_BOOTING,
	runtime.MachineStageInstalling:   machineapi.MachineStatusEvent_INSTALLING,
	runtime.MachineStageMaintenance:  machineapi.MachineStatusEvent_MAINTENANCE,
	runtime.MachineStageRunning:      machineapi.MachineStatusEvent_RUNNING,
	runtime.MachineStageRebooting:    machineapi.MachineStatusEvent_REBOOTING,
	runtime.MachineStageShuttingDown: machineapi.MachineStatusEvent_SHUTTING_DOWN,
	runtime.MachineStageResetting:    machineapi.MachineStatusEvent_RESETTING,
	runtime.MachineStageUpgrading:    machineapi.MachineStatusEvent_UPGRADING,
}

// publishStatus publishes the machine's status if it differs from the last one; the caller holds the lock.
func (m *machine) publishStatus() {
	status := &machineapi.MachineStatusEvent_MachineStatus{}
	text := m.stage.String()

	for _, u := range m.unmet() {
		status.UnmetConditions = append(
			status.UnmetConditions, &machineapi.MachineStatusEvent_MachineStatus_UnmetCondition{Name: u.Name, Reason: u.Reason},
		)
		text += "\n" + u.Name + ": " + u.Reason
	}

	if m.lastStatus == text {
		return
	}

	m.lastStatus = text
	status.Ready = len(status.GetUnmetConditions()) == 0
	m.journal.Publish(&machineapi.MachineStatusEvent{Stage: eventStages[m.stage], Status: status}, "")
}

// unmet says what keeps the machine from being ready, in Talos' order; the caller holds the lock.
func (m *machine) unmet() []runtime.UnmetCondition {
	if m.stage != runtime.MachineStageBooting && m.stage != runtime.MachineStageRunning {
		return nil
	}

	var conditions []runtime.UnmetCondition

	if !m.net.Node.IsValid() {
		conditions = append(conditions, runtime.UnmetCondition{Name: "network", Reason: "waiting on: address"})
	}

	if m.config == nil {
		return conditions
	}

	if problems := m.services.Problems(m.requiredServices()...); len(problems) > 0 {
		conditions = append(conditions, runtime.UnmetCondition{Name: "services", Reason: strings.Join(problems, ", ")})
	}

	if m.config.K8sNodeConfig().SkipNodeRegistration() {
		return conditions
	}

	if reason := m.nodeProblem(); reason != "" {
		conditions = append(conditions, runtime.UnmetCondition{Name: "nodeReady", Reason: reason})
	}

	return conditions
}

// requiredServices must run before Talos calls the machine booted.
func (m *machine) requiredServices() []string {
	if m.isControlPlane() {
		return []string{"apid", "etcd", "kubelet", "machined", "trustd"}
	}

	return []string{"apid", "kubelet", "machined"}
}

func (m *machine) nodeProblem() string {
	e := m.etcdOfNode()
	if e == nil {
		return "node \"" + m.hostname + "\" status is not available yet"
	}

	if !e.IsReady(e.Nodes[m.hostname]) {
		return "node \"" + m.hostname + "\" is not ready"
	}

	return ""
}

// finishBoot ends the boot once the services run; the caller holds the lock.
func (m *machine) finishBoot() {
	if m.stage == runtime.MachineStageBooting && m.apidUp && m.config != nil &&
		len(m.services.Problems(m.requiredServices()...)) == 0 && len(m.services.WaitingExtensions()) == 0 {
		m.setStage(runtime.MachineStageRunning)

		if m.disk.Upgraded {
			m.disk.Upgraded = false
			m.save()
		}
	}

	m.publishStatus()
}
