package talosapi

import (
	"context"
	"fmt"

	"github.com/cosi-project/runtime/pkg/state"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"talos-proxmox/lab/machine/configuration"
)

// Maintenance is the machine service of maintenance mode in releases where that has a server of its own. Like Talos',
// it answers Unimplemented to other calls.
type Maintenance struct {
	machineapi.UnimplementedMachineServiceServer

	Validator configuration.Validator
	Resources func() state.State
	// Apply installs Talos with a configuration, or runs the configuration at once.
	Apply func(configuration []byte) error
}

var errMaintenance = status.Error(codes.Unimplemented, "API is not implemented in maintenance mode")

// Version implements the machine service. Talos does not reveal its version here.
func (*Maintenance) Version(context.Context, *emptypb.Empty) (*machineapi.VersionResponse, error) {
	return nil, errMaintenance
}

// Upgrade implements the machine service.
func (*Maintenance) Upgrade(context.Context, *machineapi.UpgradeRequest) (*machineapi.UpgradeResponse, error) {
	return nil, errMaintenance
}

// Reset implements the machine service.
func (*Maintenance) Reset(context.Context, *machineapi.ResetRequest) (*machineapi.ResetResponse, error) {
	return nil, errMaintenance
}

// ApplyConfiguration implements the machine service. Talos' machinery validates the configuration.
func (s *Maintenance) ApplyConfiguration(
	ctx context.Context, in *machineapi.ApplyConfigurationRequest,
) (*machineapi.ApplyConfigurationResponse, error) {
	switch in.GetMode() {
	case machineapi.ApplyConfigurationRequest_AUTO, machineapi.ApplyConfigurationRequest_REBOOT,
		machineapi.ApplyConfigurationRequest_TRY:
	default:
		return nil, status.Errorf(
			codes.Unimplemented, "apply configuration --mode='%s' is not supported in maintenance mode",
			configuration.ModeName(in.GetMode()),
		)
	}

	cfg, err := s.Validator.Load(in.GetData())
	if err != nil {
		return nil, fmt.Errorf("failed to parse config: %w", err)
	}

	warnings, err := s.Validator.Validate(ctx, cfg, s.Resources())
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "configuration validation failed: %s", err)
	}

	reply := &machineapi.ApplyConfiguration{Warnings: warnings}

	if in.GetDryRun() {
		reply.ModeDetails = "Dry run summary:\nNode is running in maintenance mode and does not have a config yet."
	} else if !cfg.CompleteForBoot() { // Talos waits for the rest
		return &machineapi.ApplyConfigurationResponse{Messages: []*machineapi.ApplyConfiguration{reply}}, nil
	} else if err := s.Apply(in.GetData()); err != nil {
		return nil, err
	}

	return &machineapi.ApplyConfigurationResponse{Messages: []*machineapi.ApplyConfiguration{reply}}, nil
}
