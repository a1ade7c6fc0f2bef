package machine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	cosiapi "github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/google/uuid"
	clusterapi "github.com/siderolabs/talos/pkg/machinery/api/cluster"
	"github.com/siderolabs/talos/pkg/machinery/api/inspect"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/api/storage"
	timeapi "github.com/siderolabs/talos/pkg/machinery/api/time"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// machined is the machine service of a configured machine. Methods it lacks answer Unimplemented.
type machined struct {
	machineapi.UnimplementedMachineServiceServer

	m *machine
}

func (m *machine) registerMachined(server *grpc.Server) {
	machineapi.RegisterMachineServiceServer(server, &machined{m: m})
	clusterapi.RegisterClusterServiceServer(server, &healthServer{m: m})
	storage.RegisterStorageServiceServer(server, m.storageServer())
	timeapi.RegisterTimeServiceServer(server, timeServer{})
	inspect.RegisterInspectServiceServer(server, inspectServer{})
	cosiapi.RegisterStateServer(server, m.stateServer())
}

// lock takes the machines' lock for a request; it fails when the machine is going down and its configuration is gone.
func (s *machined) lock() (unlock func(), err error) {
	s.m.ms.mu.Lock()

	if s.m.config == nil {
		s.m.ms.mu.Unlock()

		return nil, status.Error(codes.Unavailable, "the machine is going down")
	}

	return s.m.ms.mu.Unlock, nil
}

// lockControlPlane is lock for what only control planes do.
func (s *machined) lockControlPlane(what string) (unlock func(), err error) {
	unlock, err = s.lock()
	if err != nil {
		return nil, err
	}

	if !s.m.isControlPlane() {
		unlock()

		return nil, status.Errorf(codes.Unimplemented, "%s is only available on control plane nodes", what)
	}

	return unlock, nil
}

// Version implements the machine service.
func (s *machined) Version(context.Context, *emptypb.Empty) (*machineapi.VersionResponse, error) {
	unlock, err := s.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()

	return &machineapi.VersionResponse{Messages: []*machineapi.Version{{
		Version:  &machineapi.VersionInfo{Tag: s.m.system.Version, Os: "linux", Arch: s.m.system.Arch, GoVersion: "go1.25.8", Built: ""},
		Platform: &machineapi.PlatformInfo{Name: s.m.system.Platform, Mode: s.m.mode().String()},
		Features: &machineapi.FeaturesInfo{Rbac: true},
	}}}, nil
}

// Hostname implements the machine service.
func (s *machined) Hostname(context.Context, *emptypb.Empty) (*machineapi.HostnameResponse, error) {
	unlock, err := s.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()

	return &machineapi.HostnameResponse{Messages: []*machineapi.Hostname{{Hostname: s.m.hostname}}}, nil
}

// ServiceList implements the machine service.
func (s *machined) ServiceList(context.Context, *emptypb.Empty) (*machineapi.ServiceListResponse, error) {
	unlock, err := s.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()

	list := &machineapi.ServiceList{}
	for _, one := range s.m.services.list() {
		list.Services = append(list.Services, s.m.serviceInfo(one))
	}

	return &machineapi.ServiceListResponse{Messages: []*machineapi.ServiceList{list}}, nil
}

// ServiceStart implements the machine service.
func (s *machined) ServiceStart(_ context.Context, in *machineapi.ServiceStartRequest) (*machineapi.ServiceStartResponse, error) {
	reply := &machineapi.ServiceStart{Resp: fmt.Sprintf("Service %q started", in.GetId())}

	return &machineapi.ServiceStartResponse{Messages: []*machineapi.ServiceStart{reply}}, s.control(in.GetId(), true)
}

// ServiceStop implements the machine service.
func (s *machined) ServiceStop(_ context.Context, in *machineapi.ServiceStopRequest) (*machineapi.ServiceStopResponse, error) {
	reply := &machineapi.ServiceStop{Resp: fmt.Sprintf("Service %q stopped", in.GetId())}

	return &machineapi.ServiceStopResponse{Messages: []*machineapi.ServiceStop{reply}}, s.control(in.GetId(), false)
}

// ServiceRestart implements the machine service.
func (s *machined) ServiceRestart(_ context.Context, in *machineapi.ServiceRestartRequest) (*machineapi.ServiceRestartResponse, error) {
	if err := s.control(in.GetId(), false); err != nil {
		return nil, err
	}

	reply := &machineapi.ServiceRestart{Resp: fmt.Sprintf("Service %q restarted", in.GetId())}

	return &machineapi.ServiceRestartResponse{Messages: []*machineapi.ServiceRestart{reply}}, s.control(in.GetId(), true)
}

// control starts or stops a service. Talos allows it for the kubelet and extensions; a stopped etcd member can only be started again.
func (s *machined) control(id string, start bool) error {
	unlock, err := s.lock()
	if err != nil {
		return err
	}
	defer unlock()

	one := s.m.services[id]
	if one == nil {
		return fmt.Errorf("service %q not defined", id)
	}

	if allowed := id == "kubelet" || id == "etcd" && start || strings.HasPrefix(id, "ext-"); !allowed {
		return fmt.Errorf("service %q doesn't support %s operation via API", id, map[bool]string{true: "start", false: "stop"}[start])
	}

	switch {
	case start && id == "etcd" && one.state != stateFinished:
	case start && id == "etcd":
		s.m.services.set(s.m, id, statePreparing, "Running pre state")
	case start:
		s.m.services.set(s.m, id, stateRunning, "Health check successful")
	default:
		s.m.services.set(s.m, id, stateFinished, "Service finished successfully")
	}

	if id == "kubelet" && s.m.disk.KubeletRegistered {
		s.m.kubelet.posting = start
	}

	s.m.cluster.changed.fire()

	return nil
}

// Reboot implements the machine service.
func (s *machined) Reboot(context.Context, *machineapi.RebootRequest) (*machineapi.RebootResponse, error) {
	actor := uuid.NewString()
	if err := s.m.request(action{kind: actReboot, actor: actor}); err != nil {
		return nil, err
	}

	return &machineapi.RebootResponse{Messages: []*machineapi.Reboot{{ActorId: actor}}}, nil
}

// Shutdown implements the machine service.
func (s *machined) Shutdown(context.Context, *machineapi.ShutdownRequest) (*machineapi.ShutdownResponse, error) {
	actor := uuid.NewString()
	if err := s.m.request(action{kind: actShutdown, actor: actor}); err != nil {
		return nil, err
	}

	return &machineapi.ShutdownResponse{Messages: []*machineapi.Shutdown{{ActorId: actor}}}, nil
}

// Reset implements the machine service.
func (s *machined) Reset(_ context.Context, in *machineapi.ResetRequest) (*machineapi.ResetResponse, error) {
	if len(in.GetUserDisksToWipe()) > 0 && in.GetMode() == machineapi.ResetRequest_SYSTEM_DISK {
		return nil, errors.New("reset failed: invalid input, wipe mode SYSTEM_DISK doesn't support UserDisksToWipe parameter")
	}

	for _, p := range in.GetSystemPartitionsToWipe() {
		switch p.GetLabel() {
		case "STATE", "EPHEMERAL", "META":
		default:
			return nil, fmt.Errorf("failed to get volume status with label %q: resource not found", p.GetLabel())
		}
	}

	actor := uuid.NewString()
	if err := s.m.request(action{kind: actReset, actor: actor, reset: in}); err != nil {
		return nil, err
	}

	return &machineapi.ResetResponse{Messages: []*machineapi.Reset{{ActorId: actor}}}, nil
}

// Upgrade implements the machine service: the image is looked up at once, the state of etcd is checked unless forced.
func (s *machined) Upgrade(_ context.Context, in *machineapi.UpgradeRequest) (*machineapi.UpgradeResponse, error) {
	if s.m.ms.options.Resolver == nil {
		return nil, fmt.Errorf("error validating installer image %q: there is no Image Factory", in.GetImage())
	}

	system, err := s.m.ms.options.Resolver.Resolve(in.GetImage())
	if err != nil {
		return nil, fmt.Errorf("error validating installer image %q: failed to pull image %q: failed to resolve reference %q: %w", in.GetImage(), in.GetImage(), in.GetImage(), err)
	}

	unlock, err := s.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()

	if s.m.isControlPlane() && !in.GetForce() {
		if err := s.m.upgradeable(); err != nil {
			return nil, err
		}
	}

	if s.m.disks.Volume == "" {
		return nil, status.Error(codes.FailedPrecondition, "Talos is not installed")
	}

	system = asInstalled(system)
	if system.Arch == "" {
		system.Arch = s.m.system.Arch
	}

	actor := uuid.NewString()
	if err := s.m.requestLocked(action{kind: actUpgrade, actor: actor, system: system}); err != nil {
		return nil, err
	}

	return &machineapi.UpgradeResponse{Messages: []*machineapi.Upgrade{{Ack: "Upgrade request received", ActorId: actor}}}, nil
}

// Rollback implements the machine service: the system before the last upgrade boots again.
func (s *machined) Rollback(context.Context, *machineapi.RollbackRequest) (*machineapi.RollbackResponse, error) {
	unlock, err := s.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()

	if s.m.disks.Volume == "" {
		return nil, status.Error(codes.FailedPrecondition, "system disk not found")
	}

	if s.m.disk.Previous == nil {
		return nil, errors.New("previous UKI not found")
	}

	s.m.logf("[talos] rollback via API received")

	if err := s.m.requestLocked(action{kind: actReboot, actor: uuid.NewString()}); err != nil {
		return nil, err
	}

	s.m.replaceSystem(*s.m.disk.Previous)

	return &machineapi.RollbackResponse{Messages: []*machineapi.Rollback{{}}}, nil
}

// upgradeable checks etcd as Talos does before it takes a member down; the caller holds the lock.
func (m *machine) upgradeable() error {
	e := m.etcd
	if e == nil || !e.quorum() {
		return fmt.Errorf("failed to create etcd client: %w", errNoEtcd)
	}

	if len(e.members) == 2 {
		return fmt.Errorf("error validating etcd for upgrade: etcd member count(%d) is insufficient to maintain quorum if upgrade commences", len(e.members))
	}

	for _, member := range e.members {
		if !e.runs(member.ID) {
			return fmt.Errorf("error validating etcd for upgrade: etcd member %016x is not healthy; all members must be healthy to perform an upgrade", member.ID)
		}
	}

	return nil
}

// timeServer implements the time service; the lab's machines have their host's time.
type timeServer struct {
	timeapi.UnimplementedTimeServiceServer
}

// Time implements the time service.
func (timeServer) Time(context.Context, *emptypb.Empty) (*timeapi.TimeResponse, error) {
	return timeReply("pool"), nil
}

// TimeCheck implements the time service.
func (timeServer) TimeCheck(_ context.Context, in *timeapi.TimeRequest) (*timeapi.TimeResponse, error) {
	return timeReply(in.GetServer()), nil
}

func timeReply(server string) *timeapi.TimeResponse {
	now := timestamppb.New(time.Now())

	return &timeapi.TimeResponse{Messages: []*timeapi.Time{{Server: server, Localtime: now, Remotetime: now}}}
}
