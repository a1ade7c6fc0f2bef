package machine

import (
	"fmt"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"google.golang.org/protobuf/proto"

	"talos-proxmox/lab/machine/services"
)

// logfLocked writes to the machine's console; the caller holds the lock.
func (m *machine) logfLocked(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	m.journal.Log(text)
	m.ms.options.Log.Debug(text, "vmid", m.hw.VMID, "machine", m.hw.Name)
}

// Logf is logfLocked for callers without the lock.
func (m *machine) Logf(format string, args ...any) {
	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	m.logfLocked(format, args...)
}

// ReportProblem records and logs why the machine cannot be reached.
func (m *machine) ReportProblem(format string, args ...any) {
	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	m.problem = fmt.Sprintf(format, args...)
	m.logfLocked("[talos] %s", m.problem)
}

// newServices returns the services of a boot, whose changes are logged and published; the caller holds the lock.
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

// ReportEtcd sets the state of the etcd service; the caller does not hold the lock.
func (m *machine) ReportEtcd(state, message string) {
	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	m.services.Set("etcd", state, message)
}

// startServices starts the services that do not depend on other machines; the caller holds the lock.
func (m *machine) startServices() {
	m.services.StartSystem(m.config != nil)
	m.startExtensions()
}

// startExtensions starts the services of extensions; the caller holds the lock.
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

// publish publishes an event; the caller does not hold the lock.
func (m *machine) publish(event proto.Message, actor string) {
	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	m.journal.Publish(event, actor)
}

func (m *machine) publishSequence(kind actionKind, what machineapi.SequenceEvent_Action, actor string) {
	m.publish(&machineapi.SequenceEvent{Sequence: sequences[kind], Action: what}, actor)
}

// publishFailure publishes that a sequence failed (internal/app/machined/pkg/runtime/v1alpha1/v1alpha1_controller.go).
func (m *machine) publishFailure(kind actionKind, actor string, err error) {
	m.publish(&machineapi.SequenceEvent{
		Sequence: sequences[kind], Action: machineapi.SequenceEvent_NOOP,
		Error: &common.Error{Code: common.Code_FATAL, Message: "sequence failed: " + err.Error()},
	}, actor)
}

func (m *machine) publishTask(task, actor string) {
	m.publish(&machineapi.TaskEvent{Task: task, Action: machineapi.TaskEvent_START}, actor)
}

// eventStages maps stages to their names in events.
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

// publishStatus publishes the machine status if it has changed; the caller holds the lock.
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

// unmet returns the conditions that keep the machine from being ready, in Talos' order; the caller holds the lock.
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

// requiredServices returns the services that must run before Talos finishes the boot.
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

// finishBoot finishes the boot once the required services run; the caller holds the lock.
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
