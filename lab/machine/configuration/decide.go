package configuration

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"strings"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configdiff"
	"github.com/siderolabs/talos/pkg/machinery/config/container"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	appliedNow      = "Applied configuration without a reboot"
	appliedByReboot = "Applied configuration with a reboot"
	appliedLater    = "Staged configuration to be applied after the next reboot"
)

// DecideMode decides how a request is applied to a running machine: at once, with a reboot, or later
// (internal/app/machined/internal/server/v1alpha1/v1alpha1_server.go). In releases without reboots for changes, none is
// needed.
func (s Validator) DecideMode(
	mode machineapi.ApplyConfigurationRequest_Mode, current, next config.Provider,
) (*machineapi.ApplyConfiguration, error) {
	var reboot error
	if s.Release.RestartsForChanges {
		reboot = needsReboot(current, next)
	}

	return decide(mode, reboot)
}

// decide decides about a change; reboot says why it needs a reboot, nil if it does not.
func decide(
	mode machineapi.ApplyConfigurationRequest_Mode, reboot error,
) (*machineapi.ApplyConfiguration, error) {
	switch mode {
	case machineapi.ApplyConfigurationRequest_TRY, machineapi.ApplyConfigurationRequest_NO_REBOOT:
		if reboot != nil {
			return nil, status.Error(codes.InvalidArgument, reboot.Error())
		}

		return &machineapi.ApplyConfiguration{Mode: mode, ModeDetails: appliedNow}, nil
	case machineapi.ApplyConfigurationRequest_STAGED:
		return &machineapi.ApplyConfiguration{Mode: mode, ModeDetails: appliedLater}, nil
	case machineapi.ApplyConfigurationRequest_AUTO:
		if reboot == nil {
			return &machineapi.ApplyConfiguration{
				Mode: machineapi.ApplyConfigurationRequest_NO_REBOOT, ModeDetails: appliedNow,
			}, nil
		}

		return &machineapi.ApplyConfiguration{
			Mode: machineapi.ApplyConfigurationRequest_REBOOT, ModeDetails: appliedByReboot + ": " + reboot.Error(),
		}, nil
	case machineapi.ApplyConfigurationRequest_REBOOT:
		return &machineapi.ApplyConfiguration{Mode: mode, ModeDetails: appliedByReboot}, nil
	default:
		return nil, status.Errorf(codes.InvalidArgument, "incorrect mode '%s' specified for the apply config call", mode)
	}
}

// DecideFirst is DecideMode for a machine's first configuration, in releases where maintenance mode has the API of
// configured machines.
func (s Validator) DecideFirst(mode machineapi.ApplyConfigurationRequest_Mode) (*machineapi.ApplyConfiguration, error) {
	if mode == machineapi.ApplyConfigurationRequest_REBOOT {
		mode = machineapi.ApplyConfigurationRequest_NO_REBOOT
	}

	return decide(mode, nil)
}

// DryRun adds to a reply what a configuration would change; current is nil if there is none.
func DryRun(reply *machineapi.ApplyConfiguration, current, next config.Provider) error {
	diff, err := configdiff.DiffConfigs(current, next)
	if err != nil {
		return fmt.Errorf("failed to generate diff: %w", err)
	}

	reply.ModeDetails = fmt.Sprintf("Dry run summary:\n%s (skipped in dry-run).\nConfig diff:\n\n%s",
		reply.GetModeDetails(), cmp.Or(diff, "No changes."))

	return nil
}

// immediate are the fields of v1alpha1.MachineConfig that Talos 1.12 and 1.13 apply without a reboot
// (internal/app/machined/pkg/runtime/v1alpha1/v1alpha1_runtime.go: CanApplyImmediate).
const immediate = "MachineCA MachineAcceptedCAs MachineTime MachineCertSANs MachineInstall MachineNetwork MachineSysfs MachineSysctls MachineLogging MachineControlPlane " +
	"MachineKubelet MachineKernel MachineRegistries MachinePods MachineSeccompProfiles MachineNodeAnnotations MachineNodeLabels MachineNodeTaints"

// immediateFeatures are those of v1alpha1.FeaturesConfig.
const immediateFeatures = "KubernetesTalosAPIAccessConfig KubePrismSupport HostDNSSupport ImageCacheSupport FeatureNodeAddressSortAlgorithm"

// needsReboot returns what in the v1alpha1 document cannot be applied without a reboot; nil if everything can. Other
// documents never need a reboot.
func needsReboot(current, next config.Provider) error {
	before, after := current.RawV1Alpha1(), next.RawV1Alpha1().DeepCopy()
	if before == nil {
		return errors.New("current config is not v1alpha1")
	}

	//nolint:staticcheck // compared as they are
	after.ConfigDebug, after.ClusterConfig = before.ConfigDebug, before.ClusterConfig

	if before.MachineConfig != nil && after.MachineConfig != nil {
		copyFields(after.MachineConfig, before.MachineConfig, immediate)

		if before.MachineConfig.MachineFeatures != nil && after.MachineConfig.MachineFeatures != nil {
			copyFields(after.MachineConfig.MachineFeatures, before.MachineConfig.MachineFeatures, immediateFeatures)
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

// copyFields copies the named fields of one struct to another.
func copyFields(to, from any, fields string) {
	target, source := reflect.ValueOf(to).Elem(), reflect.ValueOf(from).Elem()

	for name := range strings.FieldsSeq(fields) {
		target.FieldByName(name).Set(source.FieldByName(name))
	}
}
