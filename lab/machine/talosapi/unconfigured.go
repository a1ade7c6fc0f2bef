package talosapi

import (
	"context"

	"github.com/cosi-project/runtime/pkg/state"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"talos-proxmox/lab/machine/configuration"
)

// Unimplemented answers calls that a service does not implement. Its embedding is one level deeper, so that the
// service's own methods take precedence.
type Unimplemented struct {
	machineapi.UnimplementedMachineServiceServer
}

// Unconfigured is the machine service of maintenance mode in releases where that has the API of configured machines.
type Unconfigured struct {
	Unimplemented
	System
	Streams

	Validator configuration.Validator
	Resources func() state.State
	// Apply installs Talos with a configuration, or runs the configuration at once; Stage only writes it to the disk.
	Apply func(configuration []byte) error
	Stage func(configuration []byte, cfg config.Provider)
}

// ApplyConfiguration implements the machine service
// (internal/app/machined/internal/server/v1alpha1/v1alpha1_server.go). No first configuration needs a reboot.
func (s *Unconfigured) ApplyConfiguration(
	ctx context.Context, in *machineapi.ApplyConfigurationRequest,
) (*machineapi.ApplyConfigurationResponse, error) {
	cfg, err := s.Validator.Load(in.GetData())
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}

	warnings, err := s.Validator.Validate(ctx, cfg, s.Resources())
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}

	reply, err := s.Validator.DecideFirst(in.GetMode())
	if err != nil {
		return nil, err
	}

	reply.Warnings = warnings

	switch {
	case in.GetDryRun():
		reply.Warnings = nil
		err = configuration.DryRun(reply, nil, cfg)
	case !cfg.CompleteForBoot(): // Talos waits for the rest
	case reply.GetMode() == machineapi.ApplyConfigurationRequest_STAGED:
		s.Stage(in.GetData(), cfg)
	default:
		err = s.Apply(in.GetData())
	}

	if err != nil {
		return nil, err
	}

	return &machineapi.ApplyConfigurationResponse{Messages: []*machineapi.ApplyConfiguration{reply}}, nil
}
