package machine

import (
	"context"
	"fmt"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"

	"talos-proxmox/lab/machine/services"
)

// ServiceStart implements the machine service.
func (s *machined) ServiceStart(
	_ context.Context, in *machineapi.ServiceStartRequest,
) (*machineapi.ServiceStartResponse, error) {
	reply := &machineapi.ServiceStart{Resp: fmt.Sprintf("Service %q started", in.GetId())}

	return &machineapi.ServiceStartResponse{Messages: []*machineapi.ServiceStart{reply}}, s.control(in.GetId(), "start")
}

// ServiceStop implements the machine service.
func (s *machined) ServiceStop(
	_ context.Context, in *machineapi.ServiceStopRequest,
) (*machineapi.ServiceStopResponse, error) {
	reply := &machineapi.ServiceStop{Resp: fmt.Sprintf("Service %q stopped", in.GetId())}

	return &machineapi.ServiceStopResponse{Messages: []*machineapi.ServiceStop{reply}}, s.control(in.GetId(), "stop")
}

// ServiceRestart implements the machine service.
func (s *machined) ServiceRestart(
	_ context.Context, in *machineapi.ServiceRestartRequest,
) (*machineapi.ServiceRestartResponse, error) {
	reply := &machineapi.ServiceRestart{Resp: fmt.Sprintf("Service %q restarted", in.GetId())}

	return &machineapi.ServiceRestartResponse{
		Messages: []*machineapi.ServiceRestart{reply},
	}, s.control(in.GetId(), "restart")
}

// control starts, stops or restarts a service. Talos allows that for the kubelet and extensions; of etcd it allows the
// start of a stopped member.
func (s *machined) control(id, operation string) error {
	unlock, err := s.lockConfigured()
	if err != nil {
		return err
	}
	defer unlock()

	svc := s.m.services.Get(id)
	if svc == nil {
		return fmt.Errorf("service %q not defined", id)
	}

	start := operation == "start"
	if allowed := id == "kubelet" || id == "etcd" && start || services.IsExtension(id); !allowed {
		return fmt.Errorf("service %q doesn't support %s operation via API", id, operation)
	}

	switch {
	case start && id == "etcd" && svc.State != services.Finished:
	case start && id == "etcd":
		s.m.services.Set(id, services.Preparing, "Running pre state")
	case start:
		s.m.services.Set(id, services.Running, "Health check successful")
	default:
		s.m.services.Set(id, services.Finished, "Service finished successfully")
	}

	if operation == "restart" {
		s.m.services.Set(id, services.Running, "Health check successful")
	}

	if id == "kubelet" && s.m.disk.KubeletRegistered {
		s.m.kubelet.posting = operation != "stop"
	}

	s.m.cluster.changed.fire()

	return nil
}
