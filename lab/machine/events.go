package machine

import (
	"strings"
	"time"

	"github.com/google/uuid"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/proto"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"google.golang.org/protobuf/types/known/anypb"
)

// eventsKept is how many events a machine remembers for clients that ask for the past.
const eventsKept = 300

// eventLog are the machine's events since it booted; positions count on over boots.
type eventLog struct {
	events  []*machineapi.Event
	times   []time.Time
	dropped int
	status  string // the last published machine status
}

// restart forgets the events of the last boot, as a machine does that kept them in memory.
func (l *eventLog) restart() {
	l.dropped += len(l.events)
	l.events, l.times, l.status = nil, nil, ""
}

// publish is called with the lock held.
func (m *machine) publish(payload proto.Message, actor string) {
	encoded, err := proto.Marshal(payload)
	if err != nil {
		panic(err) // generated messages always encode
	}

	l := &m.events
	l.events = append(l.events, &machineapi.Event{
		Id: uuid.NewString(), ActorId: actor,
		Data: &anypb.Any{TypeUrl: "talos/runtime/" + string(payload.ProtoReflect().Descriptor().FullName()), Value: encoded},
	})
	l.times = append(l.times, time.Now())

	if extra := len(l.events) - eventsKept; extra > 0 {
		l.events, l.times = append(l.events[:0:0], l.events[extra:]...), append(l.times[:0:0], l.times[extra:]...)
		l.dropped += extra
	}

	m.changed.fire()
}

// since returns the events after a position, and the position after them.
func (l *eventLog) since(position int) ([]*machineapi.Event, int) {
	from := min(max(0, position-l.dropped), len(l.events))

	return append([]*machineapi.Event(nil), l.events[from:]...), l.dropped + len(l.events)
}

// tail is the position before the events a client asked for; a negative number stands for all of them.
func (l *eventLog) tail(request *machineapi.EventsRequest) int {
	end := l.dropped + len(l.events)

	switch {
	case request.GetTailId() != "":
		for i, e := range l.events {
			if e.GetId() == request.GetTailId() {
				return l.dropped + i + 1
			}
		}

		return end
	case request.GetTailSeconds() > 0:
		oldest := time.Now().Add(-time.Duration(request.GetTailSeconds()) * time.Second)

		for i, at := range l.times {
			if at.After(oldest) {
				return l.dropped + i
			}
		}

		return end
	case request.GetTailEvents() < 0:
		return l.dropped
	default:
		return max(l.dropped, end-int(request.GetTailEvents()))
	}
}

func (m *machine) publishSequence(kind actionKind, what machineapi.SequenceEvent_Action, actor string) {
	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	m.publish(&machineapi.SequenceEvent{Sequence: sequences[kind], Action: what}, actor)
}

func (m *machine) publishTask(task, actor string) {
	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	m.publish(&machineapi.TaskEvent{Task: task, Action: machineapi.TaskEvent_START}, actor)
}

// serviceActions are the event names of the states.
var serviceActions = map[string]machineapi.ServiceStateEvent_Action{
	statePreparing: machineapi.ServiceStateEvent_PREPARING, stateWaiting: machineapi.ServiceStateEvent_WAITING,
	stateRunning: machineapi.ServiceStateEvent_RUNNING, stateFinished: machineapi.ServiceStateEvent_FINISHED, stateFailed: machineapi.ServiceStateEvent_FAILED,
}

func (m *machine) publishService(s *service) {
	m.publish(&machineapi.ServiceStateEvent{
		Service: s.name, Action: serviceActions[s.state], Message: s.events[len(s.events)-1].message, Health: m.serviceHealth(s),
	}, "")
}

// eventStages are the event names of the stages.
var eventStages = map[runtime.MachineStage]machineapi.MachineStatusEvent_MachineStage{
	runtime.MachineStageBooting: machineapi.MachineStatusEvent_BOOTING, runtime.MachineStageInstalling: machineapi.MachineStatusEvent_INSTALLING,
	runtime.MachineStageMaintenance: machineapi.MachineStatusEvent_MAINTENANCE, runtime.MachineStageRunning: machineapi.MachineStatusEvent_RUNNING,
	runtime.MachineStageRebooting: machineapi.MachineStatusEvent_REBOOTING, runtime.MachineStageShuttingDown: machineapi.MachineStatusEvent_SHUTTING_DOWN,
	runtime.MachineStageResetting: machineapi.MachineStatusEvent_RESETTING, runtime.MachineStageUpgrading: machineapi.MachineStatusEvent_UPGRADING,
}

// publishStatus publishes the machine's status if it differs from the last one; the caller holds the lock.
func (m *machine) publishStatus() {
	status := &machineapi.MachineStatusEvent_MachineStatus{}
	text := m.stage.String()

	for _, u := range m.unmet() {
		status.UnmetConditions = append(status.UnmetConditions, &machineapi.MachineStatusEvent_MachineStatus_UnmetCondition{Name: u.Name, Reason: u.Reason})
		text += "\n" + u.Name + ": " + u.Reason
	}

	if m.events.status == text {
		return
	}

	m.events.status = text
	status.Ready = len(status.GetUnmetConditions()) == 0
	m.publish(&machineapi.MachineStatusEvent{Stage: eventStages[m.stage], Status: status}, "")
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

	if problems := m.serviceProblems(); len(problems) > 0 {
		conditions = append(conditions, runtime.UnmetCondition{Name: "services", Reason: strings.Join(problems, ", ")})
	}

	if m.config.Machine().Kubelet().SkipNodeRegistration() {
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

func (m *machine) serviceProblems() []string {
	var problems []string

	for _, name := range m.requiredServices() {
		switch s := m.services[name]; {
		case s == nil || s.state != stateRunning:
			problems = append(problems, name+" not running")
		case !s.unknown && !m.healthy(s):
			problems = append(problems, name+" not healthy")
		}
	}

	return problems
}

func (m *machine) nodeProblem() string {
	e := m.etcdOfNode()
	if e == nil {
		return "node \"" + m.hostname + "\" status is not available yet"
	}

	if status, _, _ := e.nodeState(e.nodes[m.hostname]); status != "True" {
		return "node \"" + m.hostname + "\" is not ready"
	}

	return ""
}

// settle ends the boot once the services run; the caller holds the lock.
func (m *machine) settle() {
	if m.stage == runtime.MachineStageBooting && m.up && m.config != nil && len(m.serviceProblems()) == 0 && len(m.services.waiting()) == 0 {
		m.setStage(runtime.MachineStageRunning)

		if m.disk.Upgraded {
			m.disk.Upgraded = false
			m.save()
		}
	}

	m.publishStatus()
}
