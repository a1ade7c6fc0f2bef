package machine

import (
	"context"
	"fmt"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"talos-proxmox/lab/machine/services"
)

// ServiceStart implements the machine service.
func (s *machined) ServiceStart(
	_ context.Context, in *machineapi.ServiceStartRequest,
) (*machineapi.ServiceStartResponse, error) {
	reply := &machineapi.ServiceStart{Resp: fmt.Sprintf("Service %q started", in.GetId())}

	return &machineapi.ServiceStartResponse{Messages: []*machineapi.ServiceStart{reply}}, s.control(in.GetId(), true)
}

// ServiceStop implements the machine service.
func (s *machined) ServiceStop(
	_ context.Context, in *machineapi.ServiceStopRequest,
) (*machineapi.ServiceStopResponse, error) {
	reply := &machineapi.ServiceStop{Resp: fmt.Sprintf("Service %q stopped", in.GetId())}

	return &machineapi.ServiceStopResponse{Messages: []*machineapi.ServiceStop{reply}}, s.control(in.GetId(), false)
}

// ServiceRestart implements the machine service.
func (s *machined) ServiceRestart(
	_ context.Context, in *machineapi.ServiceRestartRequest,
) (*machineapi.ServiceRestartResponse, error) {
	if err := s.control(in.GetId(), false); err != nil {
		return nil, err
	}

	reply := &machineapi.ServiceRestart{Resp: fmt.Sprintf("Service %q restarted", in.GetId())}

	return &machineapi.ServiceRestartResponse{Messages: []*machineapi.ServiceRestart{reply}}, s.control(in.GetId(), true)
}

// control starts or stops a service. Talos allows it for the kubelet and extensions; a stopped etcd member can only be
// started again.
func (s *machined) control(id string, start bool) error {
	unlock, err := s.lock()
	if err != nil {
		return err
	}
	defer unlock()

	one := s.m.services.Get(id)
	if one == nil {
		return fmt.Errorf("service %q not defined", id)
	}

	if allowed := id == "kubelet" || id == "etcd" && start || services.IsExtension(id); !allowed {
		return fmt.Errorf(
			"service %q doesn't support %s operation via API", id, map[bool]string{true: "start", false: "stop"}[start],
		)
	}

	switch {
	case start && id == "etcd" && one.State != services.Finished:
	case start && id == "etcd":
		s.m.services.Set(id, services.Preparing, "Running pre state")
	case start:
		s.m.services.Set(id, services.Running, "Health check successful")
	default:
		s.m.services.Set(id, services.Finished, "Service finished successfully")
	}

	if id == "kubelet" && s.m.disk.KubeletRegistered {
		s.m.kubelet.posting = start
	}

	s.m.cluster.changed.fire()

	return nil
}

// MetaWrite implements the machine service.
func (s *machined) MetaWrite(
	_ context.Context, in *machineapi.MetaWriteRequest,
) (*machineapi.MetaWriteResponse, error) {
	if in.GetKey() > 255 {
		return nil, status.Error(codes.InvalidArgument, "key must be a uint8")
	}

	unlock, err := s.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()

	if s.m.disk.META == nil {
		s.m.disk.META = map[uint8]string{}
	}

	s.m.disk.META[uint8(in.GetKey())] = string(in.GetValue())
	s.m.save()
	s.m.changed.fire()

	return &machineapi.MetaWriteResponse{Messages: []*machineapi.MetaWrite{{}}}, nil
}

// MetaDelete implements the machine service.
func (s *machined) MetaDelete(
	_ context.Context, in *machineapi.MetaDeleteRequest,
) (*machineapi.MetaDeleteResponse, error) {
	unlock, err := s.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()

	if _, ok := s.m.disk.META[uint8(in.GetKey())]; !ok {
		return nil, status.Error(codes.NotFound, "meta key not found")
	}

	delete(s.m.disk.META, uint8(in.GetKey()))
	s.m.save()
	s.m.changed.fire()

	return &machineapi.MetaDeleteResponse{Messages: []*machineapi.MetaDelete{{}}}, nil
}
