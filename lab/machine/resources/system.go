// Package resources shows a machine as COSI resources, as Talos does: made of plain values, kept in a state that
// clients read and watch.
package resources

import (
	"strconv"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/extensions"
	configres "github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"github.com/siderolabs/talos/pkg/machinery/resources/secrets"
	timeres "github.com/siderolabs/talos/pkg/machinery/resources/time"
	"github.com/siderolabs/talos/pkg/machinery/resources/v1alpha1"

	"talos-proxmox/lab/machine/configuration"
)

// Filled sets the spec of a new resource.
func Filled[R any](r R, set func(R)) R {
	set(r)

	return r
}

// System is a machine with its operating system.
type System struct {
	UUID             string // SMBIOS UUID
	Cores, MemoryMiB int

	Version, Platform, Cmdline string
	PlatformHostname           string
	// Schematic is the id of the image's, Extensions what it contains.
	Schematic  string
	Extensions []Extension
	META       map[uint8]string

	Stage runtime.MachineStage
	// Unmet is what keeps the machine from being ready.
	Unmet    []runtime.UnmetCondition
	Services []Service
}

// Extension is one of the image, as Talos lists it.
type Extension struct{ Name, Version string }

// Service is a service's state.
type Service struct {
	Name                      string
	Running, Healthy, Unknown bool
}

// Resources are those of the machine itself.
func (s System) Resources() []resource.Resource {
	list := []resource.Resource{
		Filled(runtime.NewMachineStatus(), func(r *runtime.MachineStatus) {
			r.TypedSpec().Stage = s.Stage
			r.TypedSpec().Status.Ready = len(s.Unmet) == 0
			r.TypedSpec().Status.UnmetConditions = s.Unmet
		}),
		Filled(runtime.NewVersion(), func(r *runtime.Version) { r.TypedSpec().Version = s.Version }),
		Filled(runtime.NewKernelCmdline(), func(r *runtime.KernelCmdline) { r.TypedSpec().Cmdline = s.Cmdline }),
		Filled(
			runtime.NewSecurityStateSpec(runtime.NamespaceName),
			func(r *runtime.SecurityState) { r.TypedSpec().SELinuxState = runtime.SELinuxStatePermissive },
		),
		Filled(runtime.NewPlatformMetadataSpec(
			runtime.NamespaceName, runtime.PlatformMetadataID,
		), func(r *runtime.PlatformMetadata) {
			r.TypedSpec().Platform, r.TypedSpec().Hostname = s.Platform, s.PlatformHostname
		}),
		Filled(timeres.NewStatus(), func(r *timeres.Status) { r.TypedSpec().Synced = true }),
	}

	for tag, value := range s.META {
		list = append(
			list,
			Filled(
				runtime.NewMetaKey(runtime.NamespaceName, runtime.MetaKeyTagToID(tag)),
				func(r *runtime.MetaKey) { r.TypedSpec().Value = value },
			),
		)
	}

	for i, e := range s.Extensions {
		list = append(list, s.extensionStatus(i, e.Name, e.Version))
	}

	if s.Schematic != "" {
		list = append(list, s.extensionStatus(len(s.Extensions), "schematic", s.Schematic))
	}

	for _, one := range s.Services {
		list = append(list, Filled(v1alpha1.NewService(one.Name), func(r *v1alpha1.Service) {
			r.TypedSpec().Running, r.TypedSpec().Healthy, r.TypedSpec().Unknown = one.Running, one.Healthy, one.Unknown
		}))
	}

	return append(list, s.hardware()...)
}

// machineConfig are resources made of the configuration alone. Talos shows the persisted one only where it was written
// since the boot.
func machineConfig(cfg, persisted config.Provider) []resource.Resource {
	var list []resource.Resource

	for _, c := range cfg.ExtensionServiceConfigs() {
		list = append(list, Filled(runtime.NewExtensionServiceConfigSpec(
			runtime.NamespaceName, c.Name(),
		), func(r *runtime.ExtensionServiceConfig) {
			r.TypedSpec().Environment = c.Environment()

			for _, f := range c.ConfigFiles() {
				r.TypedSpec().Files = append(
					r.TypedSpec().Files, runtime.ExtensionServiceConfigFile{Content: f.Content(), MountPath: f.MountPath()},
				)
			}
		}))
	}

	machineType := configres.NewMachineType()
	machineType.SetMachineType(cfg.Machine().Type())

	if persisted != nil {
		list = append(list, configres.NewMachineConfigWithID(persisted, configres.PersistentID))
	}

	return append(list, configres.NewMachineConfigWithID(cfg, configres.ActiveID), machineType)
}

// extensionStatus shows an extension as Talos lists it: by its place, with its short name. The pseudo extension
// "schematic" has the schematic's id as version.
func (s System) extensionStatus(place int, name, version string) resource.Resource {
	return Filled(runtime.NewExtensionStatus(
		runtime.NamespaceName, strconv.Itoa(place),
	), func(r *runtime.ExtensionStatus) {
		*r.TypedSpec() = extensions.Layer{
			Image: strconv.Itoa(place) + ".sqsh",
			Metadata: extensions.Metadata{
				Name: name, Version: version, Author: "Image Factory", Description: "Extension of the schematic " + s.Schematic,
			},
		}
	})
}

// hardware is what the firmware says of the virtual machine.
func (s System) hardware() []resource.Resource {
	return []resource.Resource{
		Filled(hardware.NewSystemInformation(hardware.SystemInformationID), func(r *hardware.SystemInformation) {
			spec := r.TypedSpec()
			spec.Manufacturer, spec.ProductName, spec.Version = "QEMU", "Standard PC (Q35 + ICH9, 2009)", "pc-q35-10.1"
			spec.UUID, spec.WakeUpType = s.UUID, "Power Switch"
		}),
		Filled(hardware.NewProcessorInfo("CPU-0"), func(r *hardware.Processor) {
			spec := r.TypedSpec()
			spec.Socket = "CPU 0"
			spec.Manufacturer = "QEMU"
			spec.ProductName = "pc-q35-10.1"
			spec.MaxSpeed = 2000
			spec.BootSpeed = 2000
			spec.CoreCount, spec.CoreEnabled, spec.ThreadCount, spec.Status = uint32(
				s.Cores,
			), uint32(s.Cores), uint32(s.Cores), 65
		}),
		Filled(hardware.NewMemoryModuleInfo("DIMM-0"), func(r *hardware.MemoryModule) {
			r.TypedSpec().Size, r.TypedSpec().DeviceLocator, r.TypedSpec().Manufacturer = uint32(s.MemoryMiB), "DIMM 0", "QEMU"
		}),
	}
}

// secretsOf are resources that only administrators read.
func secretsOf(cfg config.Provider) []resource.Resource {
	security := cfg.Machine().Security()

	list := []resource.Resource{
		Filled(secrets.NewOSRoot(secrets.OSRootID), func(r *secrets.OSRoot) {
			r.TypedSpec().IssuingCA = security.IssuingCA()
			r.TypedSpec().AcceptedCAs = security.AcceptedCAs()
			r.TypedSpec().Token = security.Token()
		}),
	}

	if cfg.Machine().Type().IsControlPlane() {
		list = append(list,
			Filled(secrets.NewKubernetesRoot(secrets.KubernetesRootID), func(r *secrets.KubernetesRoot) {
				r.TypedSpec().Name = configuration.ClusterName(cfg)
				r.TypedSpec().Endpoint = configuration.Endpoint(cfg)

				if ca := cfg.K8sAPIServerCAConfig(); ca != nil {
					r.TypedSpec().IssuingCA, r.TypedSpec().AcceptedCAs = ca.IssuingCA(), ca.AcceptedCAs()
				}
			}),
			Filled(secrets.NewEtcdRoot(secrets.EtcdRootID), func(r *secrets.EtcdRoot) {
				r.TypedSpec().EtcdCA = cfg.Cluster().Etcd().CA()
			}),
		)
	}

	return list
}
