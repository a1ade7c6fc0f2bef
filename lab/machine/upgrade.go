package machine

import (
	"context"
	"errors"
	"fmt"
	"regexp"

	"github.com/google/uuid"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"talos-proxmox/internal/talos"
	"talos-proxmox/lab/image"
	"talos-proxmox/lab/machine/configuration"
	"talos-proxmox/lab/machine/talosapi"
)

// resolveInstaller returns the system that an installer image writes to a disk. Its errors read as those of pulling the
// image.
func (m *machine) resolveInstaller(reference string) (image.Image, error) {
	if m.ms.options.Resolver == nil {
		return image.Image{}, fmt.Errorf("failed to pull image %q: there is no Image Factory", reference)
	}

	system, err := m.ms.options.Resolver.Resolve(reference)
	if err != nil {
		return image.Image{}, fmt.Errorf("failed to pull image %q: failed to resolve reference %[1]q: %w", reference, err)
	}

	if system.Arch == "" {
		system.Arch = m.system.Arch
	}

	system.Live = false

	return system, nil
}

// installerPattern matches installer images, in Image Factories and elsewhere.
var installerPattern = regexp.MustCompile(`[/-]installer(-secureboot)?(/[^/:@]+)?[:@]`)

// checkPullable returns why an image cannot be pulled. In a lab that reaches everything, only installers are known.
func (m *machine) checkPullable(reference string) error {
	if err := m.pullable(context.Background(), m.currentConfig(), reference); err != nil {
		return err
	}

	if !installerPattern.MatchString(reference) {
		return nil
	}

	_, err := m.resolveInstaller(reference)

	return err
}

// runInstaller runs the installer of another system on this machine, and returns its output; the caller holds the lock.
func (m *machine) runInstaller(next image.Image) ([]string, error) {
	release, err := talos.ReleaseOf(next.Version)
	if err != nil {
		return nil, err
	}

	mode := m.mode()
	mode.Installed = true

	return configuration.Validator{Release: release, Version: next.Version, Mode: mode}.Install(
		m.system.Version, []byte(m.disk.Configuration),
	)
}

// Upgrade implements the machine service. It resolves the image at once, and checks etcd unless forced.
func (s *machined) Upgrade(ctx context.Context, in *machineapi.UpgradeRequest) (*machineapi.UpgradeResponse, error) {
	if err := s.m.pullable(ctx, s.m.currentConfig(), in.GetImage()); err != nil {
		return nil, fmt.Errorf("error validating installer image %q: %w", in.GetImage(), err)
	}

	system, err := s.m.resolveInstaller(in.GetImage())
	if err != nil {
		return nil, fmt.Errorf("error validating installer image %q: %w", in.GetImage(), err)
	}

	unlock, err := s.lockConfigured()
	if err != nil {
		return nil, err
	}
	defer unlock()

	if s.m.isControlPlane() && !in.GetForce() {
		if err := s.m.checkUpgradeable(); err != nil {
			return nil, err
		}
	}

	if s.m.disks.Volume == "" {
		return nil, status.Error(codes.FailedPrecondition, "Talos is not installed")
	}

	// Talos answers before the sequence starts. If another sequence is running, the failure is only logged.
	actor := uuid.NewString()
	if err := s.m.requestLocked(action{kind: actUpgrade, actor: actor, system: system, drain: true}); err != nil {
		s.m.logfLocked("[talos] upgrade failed: %s", err)
	}

	return &machineapi.UpgradeResponse{
		Messages: []*machineapi.Upgrade{{Ack: "Upgrade request received", ActorId: actor}},
	}, nil
}

// checkUpgradeable checks etcd as Talos does before it takes a member down; the caller holds the lock.
func (m *machine) checkUpgradeable() error {
	e := m.etcd
	if e == nil || !e.HasQuorum() {
		return fmt.Errorf("failed to create etcd client: %w", errNoEtcd)
	}

	if len(e.Members) == 2 {
		return fmt.Errorf(
			"error validating etcd for upgrade: etcd member count(%d) is insufficient to maintain quorum if upgrade commences",
			len(e.Members),
		)
	}

	for _, member := range e.Members {
		switch {
		case member.Name == "":
			return fmt.Errorf("error validating etcd for upgrade: etcd member %016x is not started, all members must be running to perform an upgrade", member.ID)
		case !e.IsRunning(member.ID):
			return fmt.Errorf("error validating etcd for upgrade: etcd member %016x is not healthy; all members must be healthy to perform an upgrade", member.ID)
		case member.Learner: // the check reads a key, which learners refuse
			return fmt.Errorf("error validating etcd for upgrade: etcd member %016x is not healthy; all members must be healthy to perform an upgrade: "+
				"etcdserver: rpc not supported for learner", member.ID)
		}
	}

	return nil
}

// lifecycle implements the service for installations and upgrades (internal/app/lifecycle/lifecycle.go of Talos 1.13).
type lifecycle struct {
	machineapi.UnimplementedLifecycleServiceServer

	m *machine
}

var errInstalling = status.Error(codes.FailedPrecondition, "another installation/upgrade is already in progress")

// Install implements the lifecycle service. A configured machine is installed already, or runs without an installation.
func (s lifecycle) Install(
	*machineapi.LifecycleServiceInstallRequest, grpc.ServerStreamingServer[machineapi.LifecycleServiceInstallResponse],
) error {
	return status.Error(codes.AlreadyExists, "machine is already installed")
}

// Upgrade implements the lifecycle service: the installer writes the next system and streams its output. Draining and
// rebooting are left to the client. A failed installer is reported as an exit code, not as an error of the call.
func (s lifecycle) Upgrade(
	in *machineapi.LifecycleServiceUpgradeRequest,
	out grpc.ServerStreamingServer[machineapi.LifecycleServiceUpgradeResponse],
) error {
	m := s.m

	if !m.installMu.TryLock() {
		return errInstalling
	}
	defer m.installMu.Unlock()

	system, err := s.pulledSystem(in)
	if err != nil {
		return err
	}

	sendMessage := func(format string, args ...any) error {
		text := fmt.Sprintf(format, args...)
		m.Logf("[talos] upgrade progress: %s", text)

		return out.Send(&machineapi.LifecycleServiceUpgradeResponse{Progress: &machineapi.LifecycleServiceInstallProgress{
			Response: &machineapi.LifecycleServiceInstallProgress_Message{Message: text},
		}})
	}
	sendExitCode := func(code int32) error {
		return out.Send(&machineapi.LifecycleServiceUpgradeResponse{Progress: &machineapi.LifecycleServiceInstallProgress{
			Response: &machineapi.LifecycleServiceInstallProgress_ExitCode{ExitCode: code},
		}})
	}

	m.ms.mu.Lock()
	output, failure := m.runInstaller(system)
	m.ms.mu.Unlock()

	for _, line := range output {
		if err := sendMessage("%s", line); err != nil {
			return err
		}
	}

	if failure != nil {
		return errors.Join(sendMessage("%s", failure), sendExitCode(1))
	}

	if !m.sleep(out.Context(), m.durations().Upgrade/2) {
		return status.FromContextError(out.Context().Err()).Err()
	}

	m.ms.mu.Lock()

	if m.config == nil || m.disks.Volume == "" { // going down, or reset
		m.ms.mu.Unlock()

		return errGoingDown
	}

	m.disk.Upgraded = true
	m.replaceSystem(system)
	m.ms.mu.Unlock()

	return errors.Join(sendMessage("installation of %s complete", system.Version), sendExitCode(0))
}

// pulledSystem returns the system of the installer image that a request names, which must have been pulled before.
func (s lifecycle) pulledSystem(in *machineapi.LifecycleServiceUpgradeRequest) (image.Image, error) {
	m, name := s.m, in.GetSource().GetImageName()

	m.ms.mu.Lock()
	installed := m.disks.Volume != ""
	m.ms.mu.Unlock()

	namespace, err := talosapi.Containerd(in.GetContainerd())

	switch {
	case !installed:
		return image.Image{}, status.Error(codes.FailedPrecondition, "machine is not installed")
	case name == "":
		return image.Image{}, status.Error(codes.InvalidArgument, "installer image name is required")
	case err != nil:
		return image.Image{}, status.Errorf(codes.Internal, "upgrade failed: %s", err)
	}

	pulled, found := m.images.Pulled(namespace, name)
	if !found {
		return image.Image{}, status.Errorf(
			codes.Internal, "upgrade failed: installer image %q not found in containerd store: image %q: not found", name, name,
		)
	}

	system, err := m.resolveInstaller(pulled)
	if err != nil { // the image is no installer: it has no such program
		return image.Image{}, status.Errorf(codes.Internal, "upgrade failed: failed to start task: %s", err)
	}

	return system, nil
}
