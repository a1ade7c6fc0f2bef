package machine

import (
	"cmp"
	"context"
	"errors"

	cosiapi "github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/google/uuid"
	clusterapi "github.com/siderolabs/talos/pkg/machinery/api/cluster"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/api/storage"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"talos-proxmox/lab/machine/talosapi"
)

// machined implements the machine service of a configured machine.
type machined struct {
	talosapi.Unimplemented
	talosapi.System
	talosapi.Files
	talosapi.Streams
	m *machine
}

func newMachined(m *machine) *machined {
	s := &machined{m: m}
	s.System = talosapi.System{Facts: func() (talosapi.Facts, error) { return withLock(s, m.apiFacts) }}
	s.Files = talosapi.Files{Tree: m.files, OnDisk: m.fileOnDisk}
	s.Streams = m.streams()

	return s
}

// withLock calls a function with the lock held while the machine has a configuration.
func withLock[T any](s *machined, fn func() T) (found T, err error) {
	unlock, err := s.lockConfigured()
	if err != nil {
		return found, err
	}
	defer unlock()

	return fn(), nil
}

// Containers implements the machine service, for containers of pods only.
func (s *machined) Containers(
	_ context.Context, in *machineapi.ContainersRequest,
) (*machineapi.ContainersResponse, error) {
	if in.GetNamespace() != constants.K8sContainerdNamespace {
		return nil, status.Error(codes.Unimplemented, "the lab's machines list only containers of pods")
	}

	containers, err := withLock(s, s.m.containerInfos)
	if err != nil {
		return nil, err
	}

	return &machineapi.ContainersResponse{Messages: []*machineapi.Container{{Containers: containers}}}, nil
}

// ImagePull implements the machine service: one attempt (v1alpha1_images.go).
func (s *machined) ImagePull(
	_ context.Context, in *machineapi.ImagePullRequest,
) (*machineapi.ImagePullResponse, error) {
	namespace := in.GetNamespace()
	if namespace != common.ContainerdNamespace_NS_CRI && namespace != common.ContainerdNamespace_NS_SYSTEM {
		return nil, status.Errorf(codes.InvalidArgument, "invalid namespace %s", namespace)
	}

	if _, err := s.m.images.Pull(namespace, in.GetReference()); err != nil {
		return nil, err
	}

	return &machineapi.ImagePullResponse{Messages: []*machineapi.ImagePull{{}}}, nil
}

// registerServices registers the services of a configured machine.
func (m *machine) registerServices(server grpc.ServiceRegistrar) {
	machineapi.RegisterMachineServiceServer(server, newMachined(m))

	if m.release.LifecycleAPI {
		machineapi.RegisterImageServiceServer(server, talosapi.ImageService{Images: m.images})
		machineapi.RegisterLifecycleServiceServer(server, lifecycle{m: m})
	}

	clusterapi.RegisterClusterServiceServer(server, m.healthServer())
	storage.RegisterStorageServiceServer(server, m.storageServer(constants.EphemeralPartitionLabel))
	cosiapi.RegisterStateServer(server, m.cosi.Server())
}

var errGoingDown = status.Error(codes.Unavailable, "the machine is going down")

// lockConfigured takes the machines' lock for a request. It fails if the machine is going down and its configuration is
// gone.
func (s *machined) lockConfigured() (unlock func(), err error) {
	s.m.ms.mu.Lock()

	if s.m.config == nil {
		s.m.ms.mu.Unlock()

		return nil, errGoingDown
	}

	return s.m.ms.mu.Unlock, nil
}

// onControlPlane is withLock for requests that only control planes serve.
func onControlPlane[T any](s *machined, what string, fn func() T) (found T, err error) {
	unlock, err := s.lockConfigured()
	if err != nil {
		return found, err
	}
	defer unlock()

	if !s.m.isControlPlane() {
		return found, status.Errorf(codes.Unimplemented, "%s is only available on control plane nodes", what)
	}

	return fn(), nil
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
func (s *machined) Shutdown(_ context.Context, in *machineapi.ShutdownRequest) (*machineapi.ShutdownResponse, error) {
	actor := uuid.NewString()
	if err := s.m.request(action{kind: actShutdown, actor: actor, drain: !in.GetForce()}); err != nil {
		return nil, err
	}

	return &machineapi.ShutdownResponse{Messages: []*machineapi.Shutdown{{ActorId: actor}}}, nil
}

// Reset implements the machine service.
func (s *machined) Reset(_ context.Context, in *machineapi.ResetRequest) (*machineapi.ResetResponse, error) {
	if len(in.GetUserDisksToWipe()) > 0 && in.GetMode() == machineapi.ResetRequest_SYSTEM_DISK {
		return nil, errors.New("reset failed: invalid input, wipe mode SYSTEM_DISK doesn't support UserDisksToWipe parameter")
	}

	refusal, err := withLock(s, func() error { return s.m.checkWipeable(in) })
	if err = cmp.Or(err, refusal); err != nil {
		return nil, err
	}

	actor := uuid.NewString()
	if err := s.m.request(action{kind: actReset, actor: actor, reset: in, drain: in.GetGraceful()}); err != nil {
		return nil, err
	}

	return &machineapi.ResetResponse{Messages: []*machineapi.Reset{{ActorId: actor}}}, nil
}
