// Package configuration judges machine configurations as Talos does: whether one is valid on a machine, and what
// applying it to a running one takes.
package configuration

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/cosi-project/runtime/pkg/state"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configdiff"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/container"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	appliedNow      = "Applied configuration without a reboot"
	appliedByReboot = "Applied configuration with a reboot"
	appliedLater    = "Staged configuration to be applied after the next reboot"
)

// Mode is a machine's platform as validation sees it. It implements validation.RuntimeMode.
type Mode struct {
	Metal, Installed bool
}

// String implements validation.RuntimeMode.
func (m Mode) String() string {
	if m.Metal {
		return "metal"
	}

	return "cloud"
}

// RequiresInstall implements validation.RuntimeMode.
func (m Mode) RequiresInstall() bool { return m.Metal && !m.Installed }

// InContainer implements validation.RuntimeMode.
func (Mode) InContainer() bool { return false }

// Check loads a configuration and validates it with Talos' own machinery, against the resources of a configured
// machine.
func Check(ctx context.Context, data []byte, mode Mode, resources state.State) (config.Provider, []string, error) {
	cfg, err := configloader.NewFromBytes(data)
	if err != nil {
		return nil, nil, status.Error(codes.InvalidArgument, err.Error())
	}

	if cfg.RawV1Alpha1() == nil {
		return nil, nil, status.Error(codes.InvalidArgument, "the applied machine configuration doesn't contain v1alpha1 config, did you mean to patch the machine config instead?")
	}

	warnings, err := cfg.Validate(mode)
	if err != nil {
		return nil, nil, status.Error(codes.InvalidArgument, err.Error())
	}

	more, err := cfg.RuntimeValidate(ctx, resources, mode)
	if err != nil {
		return nil, nil, status.Error(codes.InvalidArgument, err.Error())
	}

	return cfg, append(warnings, more...), nil
}

// Decide says what a request does to a running machine: at once, with a reboot, or later.
func Decide(
	wanted machineapi.ApplyConfigurationRequest_Mode, current, next config.Provider,
) (*machineapi.ApplyConfiguration, error) {
	reply := &machineapi.ApplyConfiguration{Mode: wanted, ModeDetails: appliedByReboot}
	reboot := needsReboot(current, next)

	switch wanted {
	case machineapi.ApplyConfigurationRequest_TRY, machineapi.ApplyConfigurationRequest_NO_REBOOT:
		if reboot != nil {
			return nil, status.Error(codes.InvalidArgument, reboot.Error())
		}

		reply.ModeDetails = appliedNow
	case machineapi.ApplyConfigurationRequest_STAGED:
		reply.ModeDetails = appliedLater
	case machineapi.ApplyConfigurationRequest_AUTO:
		reply.Mode, reply.ModeDetails = machineapi.ApplyConfigurationRequest_NO_REBOOT, appliedNow

		if reboot != nil {
			reply.Mode, reply.ModeDetails = machineapi.ApplyConfigurationRequest_REBOOT, appliedByReboot+": "+reboot.Error()
		}
	case machineapi.ApplyConfigurationRequest_REBOOT:
	}

	return reply, nil
}

// immediate are the parts of the machine section that Talos 1.12 takes over while it runs, by field of
// v1alpha1.MachineConfig.
const immediate = "MachineCA MachineAcceptedCAs MachineTime MachineCertSANs MachineInstall MachineNetwork MachineSysfs MachineSysctls MachineLogging MachineControlPlane " +
	"MachineKubelet MachineKernel MachineRegistries MachinePods MachineSeccompProfiles MachineNodeAnnotations MachineNodeLabels MachineNodeTaints"

// immediateFeatures are those of v1alpha1.FeaturesConfig.
const immediateFeatures = "KubernetesTalosAPIAccessConfig KubePrismSupport HostDNSSupport ImageCacheSupport FeatureNodeAddressSortAlgorithm"

// needsReboot says what in the first document cannot be taken over at once; nil when everything can. The other
// documents never need a reboot.
func needsReboot(current, next config.Provider) error {
	before, after := current.RawV1Alpha1(), next.RawV1Alpha1().DeepCopy()
	if before == nil {
		return errors.New("current config is not v1alpha1")
	}

	//nolint:staticcheck // compared as they are
	after.ConfigDebug, after.ClusterConfig = before.ConfigDebug, before.ClusterConfig

	if before.MachineConfig != nil && after.MachineConfig != nil {
		take(after.MachineConfig, before.MachineConfig, immediate)

		if before.MachineConfig.MachineFeatures != nil && after.MachineConfig.MachineFeatures != nil {
			take(after.MachineConfig.MachineFeatures, before.MachineConfig.MachineFeatures, immediateFeatures)
		}
	}

	if reflect.DeepEqual(before, after) {
		return nil
	}

	diff, err := configdiff.DiffConfigs(container.NewV1Alpha1(before), container.NewV1Alpha1(after))
	if err != nil {
		return fmt.Errorf("error calculating diff: %w", err)
	}

	return fmt.Errorf("this config change can't be applied in immediate mode\ndiff:\n%s", diff)
}

// take copies the named fields of one struct into another.
func take(to, from any, fields string) {
	target, source := reflect.ValueOf(to).Elem(), reflect.ValueOf(from).Elem()

	for name := range strings.FieldsSeq(fields) {
		target.FieldByName(name).Set(source.FieldByName(name))
	}
}

// ModeName is how talosctl writes a mode.
func ModeName(m machineapi.ApplyConfigurationRequest_Mode) string {
	return strings.ReplaceAll(strings.ToLower(m.String()), "_", "-")
}
