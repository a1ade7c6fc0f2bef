// Package configuration validates machine configurations as the Talos of a machine does: whether it can read one,
// whether it is valid there, and how it is applied to the running machine.
package configuration

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cosi-project/runtime/pkg/state"
	"github.com/hashicorp/go-multierror"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/compatibility"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/types/block"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/config/validation"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"talos-proxmox/internal/talos"
)

// Mode is a machine's platform for validation. It implements validation.RuntimeMode.
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

// Validator validates configurations as a version of Talos.
type Validator struct {
	Release talos.Release
	// Version is the patch version, such as v1.13.9.
	Version string
	Mode    Mode
}

// Load loads a configuration.
func (s Validator) Load(data []byte) (config.Provider, error) {
	if err := CheckKnown(s.Release, data); err != nil {
		return nil, err
	}

	return configloader.NewFromBytes(data)
}

// Validate validates a configuration with Talos' machinery, given the resources of a machine. It returns warnings even
// with an error.
func (s Validator) Validate(ctx context.Context, cfg config.Provider, resources state.State) ([]string, error) {
	// The machinery would validate for its own version of Talos; what depends on the version is checked separately.
	warnings, err := cfg.ValidateAtRuntime(ctx, resources, s.Mode, validation.WithLocal())

	return warnings, joinErrors(err, s.validateRelease(cfg), s.validateKubernetes(cfg))
}

// Install runs the installer of this version on a machine that runs the version host with a configuration, and returns
// its output (cmd/installer/cmd/installer/install.go, cmd/installer/pkg/install/preflight.go).
func (s Validator) Install(host string, data []byte) (output []string, err error) {
	output = []string{"running Talos installer " + s.Version}

	cfg, err := s.Load(data)
	if err != nil {
		return output, fmt.Errorf("error loading machine configuration: %w", err)
	}

	_, err = cfg.ValidateAsClient(s.Mode, validation.WithLocal())
	err = joinErrors(err, s.validateRelease(cfg))

	if s.Release.InstallerChecksKubernetes {
		err = joinErrors(err, s.validateKubernetes(cfg))
	}

	if err != nil {
		return output, fmt.Errorf("machine configuration is invalid: %w", err)
	}

	output = append(output, "running pre-flight checks", "host Talos version: "+host)

	from, unread := compatibility.ParseTalosVersion(&machineapi.VersionInfo{Tag: host})
	to, unreadToo := compatibility.ParseTalosVersion(&machineapi.VersionInfo{Tag: s.Version})

	if err = errors.Join(unread, unreadToo); err == nil {
		err = to.UpgradeableFrom(from)
	}

	if err != nil {
		return output, fmt.Errorf("pre-flight checks failed: %w", err)
	}

	return append(output, "all pre-flight checks successful"), nil
}

// joinErrors lists errors as the machinery does; nil without any.
func joinErrors(list ...error) error {
	var all *multierror.Error

	for _, err := range list {
		if err != nil {
			all = multierror.Append(all, err)
		}
	}

	return all.ErrorOrNil()
}

// validateRelease checks what the machinery, which is of another release, does not.
func (s Validator) validateRelease(cfg config.Provider) error {
	var all *multierror.Error

	raw := cfg.RawV1Alpha1()

	if s.Release.RequiresInstall && s.Mode.RequiresInstall() && raw != nil && raw.MachineConfig != nil &&
		raw.MachineConfig.MachineInstall == nil {
		all = multierror.Append(all, fmt.Errorf("install instructions are required in %q mode", s.Mode))
	}

	for _, doc := range cfg.Documents() {
		volume, ok := doc.(*block.VolumeConfigV1Alpha1)
		if !ok {
			continue
		}

		if !s.Release.Reads(volume.Kind() + "/" + volume.Name()) {
			all = multierror.Append(all, fmt.Errorf(
				"%s/%s: only %q volumes are supported", volume.Kind(), volume.Name(), oldVolumes,
			))
		}
	}

	return all.ErrorOrNil()
}

// oldVolumes are the volumes whose settings every release supports.
var oldVolumes = []string{
	constants.StatePartitionLabel, constants.EphemeralPartitionLabel, constants.ImageCachePartitionLabel,
}

// validateKubernetes checks that this version of Talos supports the Kubernetes version of the configuration's images.
func (s Validator) validateKubernetes(cfg config.Provider) error {
	raw := cfg.RawV1Alpha1()
	if raw == nil || raw.MachineConfig == nil || raw.ClusterConfig == nil {
		return nil // reported by the machinery
	}

	version, err := compatibility.ParseTalosVersion(&machineapi.VersionInfo{Tag: s.Version})
	if err != nil {
		return fmt.Errorf("failed to parse Talos version: %w", err)
	}

	images := map[string]string{"kubelet": cfg.K8sKubeletConfig().Image()}

	if cfg.Machine().Type().IsControlPlane() {
		images["kube-apiserver"] = cfg.K8sAPIServerConfig().Image()
		images["kube-controller-manager"] = cfg.K8sControllerManagerConfig().Image()
		images["kube-scheduler"] = cfg.K8sSchedulerConfig().Image()
	}

	var all *multierror.Error

	for _, name := range slices.Sorted(maps.Keys(images)) {
		image := images[name]
		if !s.Release.KubernetesDocuments && strings.HasSuffix(image, ":v"+constants.DefaultKubernetesVersion) &&
			!setsImage(raw, image) {
			continue // a default of the machinery
		}

		wanted, err := compatibility.KubernetesVersionFromImageRef(image)
		if err == nil {
			err = wanted.SupportedWith(version)
		}

		if err != nil {
			all = multierror.Append(all, fmt.Errorf("%s image is not valid: %w", name, err))
		}
	}

	return all.ErrorOrNil()
}

// setsImage reports whether the v1alpha1 document sets one of Kubernetes' images; other documents always do.
func setsImage(raw *v1alpha1.Config, image string) bool {
	images := []string{
		raw.ClusterConfig.APIServer().ContainerImage, raw.ClusterConfig.ControllerManager().ContainerImage,
		raw.ClusterConfig.Scheduler().ContainerImage,
	}

	if raw.MachineConfig.MachineKubelet != nil {
		images = append(images, raw.MachineConfig.MachineKubelet.KubeletImage)
	}

	return slices.Contains(images, image)
}

// Check loads and validates the configuration of a request to a configured machine.
func (s Validator) Check(
	ctx context.Context, in *machineapi.ApplyConfigurationRequest, resources state.State,
) (config.Provider, []string, error) {
	cfg, err := s.Load(in.GetData())
	if err != nil {
		return nil, nil, status.Error(codes.InvalidArgument, err.Error())
	}

	if cfg.RawV1Alpha1() == nil {
		return nil, nil, status.Error(codes.InvalidArgument, "the applied machine configuration doesn't contain v1alpha1 config, did you mean to patch the machine config instead?")
	}

	if in.GetMode() == machineapi.ApplyConfigurationRequest_REBOOT && !s.Release.RestartsForChanges {
		return nil, nil, status.Error(codes.Unimplemented, "the REBOOT mode is not supported, please use AUTO or NO_REBOOT modes instead")
	}

	warnings, err := s.Validate(ctx, cfg, resources)
	if err != nil {
		return nil, nil, status.Error(codes.InvalidArgument, err.Error())
	}

	return cfg, warnings, nil
}

// ModeName returns a mode as talosctl writes it.
func ModeName(m machineapi.ApplyConfigurationRequest_Mode) string {
	return strings.ReplaceAll(strings.ToLower(m.String()), "_", "-")
}
