package machine

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// States of a service, in Talos' words.
const (
	statePreparing = "Preparing"
	stateWaiting   = "Waiting"
	stateRunning   = "Running"
	stateFinished  = "Finished"
	stateFailed    = "Failed"
)

// serviceEvents is how many events Talos remembers of a service.
const serviceEvents = 16

// service is a Talos service: of the system, or of an extension.
type service struct {
	name   string
	state  string
	since  time.Time
	events []serviceEvent
	// unknown services have no health check.
	unknown bool
}

type serviceEvent struct {
	state, message string
	at             time.Time
}

type services map[string]*service

// unchecked are the services without a health check.
var unchecked = map[string]bool{"auditd": true, "dashboard": true, "machined": false, "syslogd": true}

func (s services) list() []*service {
	all := make([]*service, 0, len(s))
	for _, one := range s {
		all = append(all, one)
	}

	slices.SortFunc(all, func(a, b *service) int { return cmp.Compare(a.name, b.name) })

	return all
}

func (s services) stopped(name string) bool { return s[name] != nil && s[name].state == stateFinished }

func (s services) running(name string) bool { return s[name] != nil && s[name].state == stateRunning }

// set changes the state of a service; the caller holds the lock.
func (s services) set(m *machine, name, state, message string) {
	one := s[name]
	if one == nil {
		one = &service{name: name, unknown: unchecked[name] || strings.HasPrefix(name, "ext-")}
		s[name] = one
	}

	if one.state != state {
		one.since = time.Now()
	}

	one.state = state
	one.events = append(one.events, serviceEvent{state: state, message: message, at: time.Now()})
	one.events = one.events[max(0, len(one.events)-serviceEvents):]
	m.logf("[talos] service[%s](%s): %s", name, state, message)
	m.publishService(one)
	m.settle()
}

// setEtcd is services.set for etcd, by callers without the lock.
func (m *machine) setEtcd(state, message string) {
	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	m.services.set(m, "etcd", state, message)
}

// healthy is the service's health at this moment: etcd's depends on its peers, the others' on their state.
func (m *machine) healthy(s *service) bool {
	if s.state != stateRunning || s.unknown {
		return false
	}

	if s.name == "etcd" {
		return m.etcd != nil && m.etcd.quorum()
	}

	return true
}

// startServices brings up what does not depend on other machines; the caller holds the lock.
func (m *machine) startServices() {
	for _, name := range []string{"auditd", "containerd", "cri", "dashboard", "machined", "syslogd", "udevd"} {
		m.services.set(m, name, stateRunning, "Health check successful")
	}

	for _, e := range m.extensions {
		if name, ok := extensionServices[e.Name]; ok {
			m.startExtension(name)
		}
	}
}

// extensionServices are the extensions that bring a service.
var extensionServices = map[string]string{
	"qemu-guest-agent": "ext-qemu-guest-agent", "iscsi-tools": "ext-iscsid", "tailscale": "ext-tailscale", "nvidia-container-toolkit-lts": "ext-nvidia-persistenced",
	"nvidia-container-toolkit-production": "ext-nvidia-persistenced", "cloudflared": "ext-cloudflared", "nut-client": "ext-nut-client",
}

// configuredExtensions run only with an ExtensionServiceConfig document.
var configuredExtensions = map[string]bool{"ext-tailscale": true, "ext-cloudflared": true, "ext-nut-client": true}

// startExtension starts the service of an extension, or says what it waits for; the caller holds the lock.
func (m *machine) startExtension(name string) {
	if name == "ext-nvidia-persistenced" {
		running, message := m.kernel.Persistenced(name)

		state := stateWaiting
		if running {
			state = stateRunning
		}

		m.services.set(m, name, state, message)

		return
	}

	if configuredExtensions[name] && !m.extensionConfigured(strings.TrimPrefix(name, "ext-")) {
		m.services.set(m, name, stateWaiting, fmt.Sprintf("Waiting for extension service config %q", strings.TrimPrefix(name, "ext-")))

		return
	}

	m.services.set(m, name, stateRunning, "Started task "+name)
}

func (m *machine) extensionConfigured(name string) bool {
	if m.config == nil {
		return false
	}

	for _, c := range m.config.ExtensionServiceConfigs() {
		if c.Name() == name {
			return true
		}
	}

	return false
}

// proto is the service as the API shows it.
func (m *machine) serviceInfo(s *service) *machineapi.ServiceInfo {
	events := make([]*machineapi.ServiceEvent, 0, len(s.events))
	for _, e := range s.events {
		events = append(events, &machineapi.ServiceEvent{Msg: e.message, State: e.state, Ts: timestamppb.New(e.at)})
	}

	return &machineapi.ServiceInfo{Id: s.name, State: s.state, Events: &machineapi.ServiceEvents{Events: events}, Health: m.serviceHealth(s)}
}

func (m *machine) serviceHealth(s *service) *machineapi.ServiceHealth {
	health := &machineapi.ServiceHealth{Unknown: s.unknown || s.state != stateRunning, Healthy: m.healthy(s), LastChange: timestamppb.New(s.since)}

	if !health.Unknown && !health.Healthy {
		health.LastMessage = "etcdserver: no leader"
	}

	return health
}
