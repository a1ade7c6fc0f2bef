// Package services is the list of a machine's services with their states, as the Talos API shows it.
package services

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// States of a service in Talos.
const (
	Preparing = "Preparing"
	Waiting   = "Waiting"
	Running   = "Running"
	Finished  = "Finished"
	Failed    = "Failed"
)

// maxEvents is how many events of a service Talos keeps.
const maxEvents = 16

// Services are the services of one boot. The machine's lock guards them; changed is called with it held.
type Services struct {
	all     map[string]*Service
	quorum  func() bool
	changed func(*Service)
}

// Service is a service of the system or of an extension.
type Service struct {
	Name, State string
	// Unknown services have no health check.
	Unknown bool

	of     *Services
	since  time.Time
	events []event
}

type event struct {
	state, message string
	at             time.Time
}

// New returns an empty list; quorum reports whether etcd has quorum, changed is called for every change.
func New(quorum func() bool, changed func(*Service)) *Services {
	return &Services{all: map[string]*Service{}, quorum: quorum, changed: changed}
}

// unchecked are the system's services without a health check.
var unchecked = map[string]bool{"auditd": true, "dashboard": true, "syslogd": true}

// Set sets the state of a service.
func (s *Services) Set(name, state, message string) {
	svc := s.all[name]
	if svc == nil {
		svc = &Service{Name: name, Unknown: unchecked[name] || IsExtension(name), of: s}
		s.all[name] = svc
	}

	if svc.State != state {
		svc.since = time.Now()
	}

	svc.State = state
	svc.events = append(svc.events, event{state: state, message: message, at: time.Now()})
	svc.events = svc.events[max(0, len(svc.events)-maxEvents):]
	s.changed(svc)
}

// Remove removes a service, as if it had never started.
func (s *Services) Remove(name string) { delete(s.all, name) }

// Get returns a service; nil if there is none.
func (s *Services) Get(name string) *Service { return s.all[name] }

// List returns all services sorted by name.
func (s *Services) List() []*Service {
	all := make([]*Service, 0, len(s.all))
	for _, svc := range s.all {
		all = append(all, svc)
	}

	slices.SortFunc(all, func(a, b *Service) int { return cmp.Compare(a.Name, b.Name) })

	return all
}

// Stopped reports whether a service was stopped.
func (s *Services) Stopped(name string) bool {
	return s.all[name] != nil && s.all[name].State == Finished
}

// Running reports whether a service is running.
func (s *Services) Running(name string) bool {
	return s.all[name] != nil && s.all[name].State == Running
}

// Problems returns which of the services do not run or are not healthy.
func (s *Services) Problems(required ...string) []string {
	var problems []string

	for _, name := range required {
		switch svc := s.all[name]; {
		case svc == nil || svc.State != Running:
			problems = append(problems, name+" not running")
		case !svc.Unknown && !svc.Healthy():
			problems = append(problems, name+" not healthy")
		}
	}

	return problems
}

// Problem returns why a service is not ready, in the words of a health check; empty if it is.
func (s *Services) Problem(name string) string {
	switch svc := s.all[name]; {
	case svc == nil:
		return fmt.Sprintf("service %q not found", name)
	case svc.State != Running:
		return fmt.Sprintf(
			"service %q not in expected state %q: current state [%s] %s", name, Running, svc.State, svc.Message(),
		)
	case !svc.Healthy() && !svc.Unknown:
		return "service is not healthy: " + name
	default:
		return ""
	}
}

// Healthy reports whether the service is healthy: etcd's health depends on quorum, that of others on their state.
func (s *Service) Healthy() bool {
	return s.State == Running && !s.Unknown && (s.Name != "etcd" || s.of.quorum())
}

// Message returns the message of the last event.
func (s *Service) Message() string { return s.events[len(s.events)-1].message }

// Info returns the service as the API shows it.
func (s *Service) Info() *machineapi.ServiceInfo {
	events := make([]*machineapi.ServiceEvent, 0, len(s.events))
	for _, e := range s.events {
		events = append(events, &machineapi.ServiceEvent{Msg: e.message, State: e.state, Ts: timestamppb.New(e.at)})
	}

	return &machineapi.ServiceInfo{
		Id: s.Name, State: s.State, Events: &machineapi.ServiceEvents{Events: events}, Health: s.health(),
	}
}

func (s *Service) health() *machineapi.ServiceHealth {
	health := &machineapi.ServiceHealth{
		Unknown: s.Unknown || s.State != Running, Healthy: s.Healthy(), LastChange: timestamppb.New(s.since),
	}

	if !health.GetUnknown() && !health.GetHealthy() {
		health.LastMessage = "etcdserver: no leader"
	}

	return health
}

// actions maps states to their names in events.
var actions = map[string]machineapi.ServiceStateEvent_Action{
	Preparing: machineapi.ServiceStateEvent_PREPARING,
	Waiting:   machineapi.ServiceStateEvent_WAITING,
	Running:   machineapi.ServiceStateEvent_RUNNING,
	Finished:  machineapi.ServiceStateEvent_FINISHED, Failed: machineapi.ServiceStateEvent_FAILED,
}

// Event returns the last event as the API streams it.
func (s *Service) Event() *machineapi.ServiceStateEvent {
	return &machineapi.ServiceStateEvent{
		Service: s.Name, Action: actions[s.State], Message: s.Message(), Health: s.health(),
	}
}
