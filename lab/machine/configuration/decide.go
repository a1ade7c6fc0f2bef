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

// DecideMode says what a request does to a running machine: at once, with a reboot, or later
// (internal/app/machined/internal/server/v1alpha1/v1alpha1_server.go). Where machines do not restart for changes, none
// is looked for what needs it.
func (s Validator) DecideMode(
	wanted machineapi.ApplyConfigurationRequest_Mode, current, next config.Provider,
) (*machineapi.ApplyConfiguration, error) {
	var reboot error
	if s.Release.RestartsForChanges {
		reboot = needsReboot(current, next)
	}

	return decide(wanted, reboot)
}

// decide is what is done with a change that nil or an error says to need a reboot.
func decide(
	wanted machineapi.ApplyConfigurationRequest_Mode, reboot error,
) (*machineapi.ApplyConfiguration, error) {
	switch wanted {
	case machineapi.ApplyConfigurationRequest_TRY, machineapi.ApplyConfigurationRequest_NO_REBOOT:
		if reboot != nil {
			return nil, status.Error(codes.InvalidArgument, reboot.Error())
		}

		return &machineapi.ApplyConfiguration{Mode: wanted, ModeDetails: appliedNow}, nil
	case machineapi.ApplyConfigurationRequest_STAGED:
		return &machineapi.ApplyConfiguration{Mode: wanted, ModeDetails: appliedLater}, nil
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
		return &machineapi.ApplyConfiguration{Mode: wanted, ModeDetails: appliedByReboot}, nil
	default:
		return nil, status.Errorf(codes.InvalidArgument, "incorrect mode '%s' specified for the apply config call", wanted)
	}
}

// DecideFirst is Decide for a machine's first configuration where the API of maintenance mode is that of configured
// machines.
func (s Validator) DecideFirst(wanted machineapi.ApplyConfigurationRequest_Mode) (*machineapi.ApplyConfiguration, error) {
	if wanted == machineapi.ApplyConfigurationRequest_REBOOT {
		wanted = machineapi.ApplyConfigurationRequest_NO_REBOOT
	}

	return decide(wanted, nil)
}

// DryRun says in a reply what applying a configuration to a machine would change; current is nil where it has none.
func DryRun(reply *machineapi.ApplyConfiguration, current, next config.Provider) error {
	diff, err := configdiff.DiffConfigs(current, next)
	if err != nil {
		return fmt.Errorf("failed to generate diff: %w", err)
	}

	reply.ModeDetails = fmt.Sprintf("Dry run summary:\n%s (skipped in dry-run).\nConfig diff:\n\n%s",
		reply.GetModeDetails(), cmp.Or(diff, "No changes."))

	return nil
}

// immediate are the parts of the machine section that Talos 1.12 and 1.13 take over while they run, by field of
// v1alpha1.MachineConfig (internal/app/machined/pkg/runtime/v1alpha1/v1alpha1_runtime.go: CanApplyImmediate).
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

// copyFields copies the named fields of one struct into another.
func copyFields(to, from any, fields string) {
	target, source := reflect.ValueOf(to).Elem(), reflect.ValueOf(from).Elem()

	for name := range strings.FieldsSeq(fields) {
		target.FieldByName(name).Set(source.FieldByName(name))
	}
}
