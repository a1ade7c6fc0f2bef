// Package resources shows a machine as COSI resources, as Talos does: they are created from plain values, and kept in a
// state that clients read and watch.
package resources

import (
	"strconv"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/extensions"
	configres "github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"github.com/siderolabs/talos/pkg/machinery/resources/secrets"
	"github.com/siderolabs/talos/pkg/machinery/resources/v1alpha1"

	"talos-proxmox/lab/machine/configuration"
	"talos-proxmox/lab/machine/services"
)

// WithSpec sets the spec of a new resource.
func WithSpec[R any](r R, set func(R)) R {
	set(r)

	return r
}

// System is a machine with its operating system.
type System struct {
	// Schematic is the id of the image's schematic, Extensions its extensions.
	Schematic  string
	Extensions []Extension
	// SecureBoot reports whether firmware checked the system's signature, Signed whether it has one.
	SecureBoot, Signed bool

	Stage runtime.MachineStage
	// Unmet are the conditions that keep the machine from being ready.
	Unmet    []runtime.UnmetCondition
	Services []*services.Service
}

// Extension is an extension of the image, as Talos lists it.
type Extension struct{ Name, Version string }

// Resources returns the resources of the machine itself.
func (s System) Resources() []resource.Resource {
	list := []resource.Resource{
		WithSpec(runtime.NewMachineStatus(), func(r *runtime.MachineStatus) {
			r.TypedSpec().Stage = s.Stage
			r.TypedSpec().Status.Ready = len(s.Unmet) == 0
			r.TypedSpec().Status.UnmetConditions = s.Unmet
		}),
		WithSpec(runtime.NewSecurityStateSpec(runtime.NamespaceName), func(r *runtime.SecurityState) {
			r.TypedSpec().SecureBoot, r.TypedSpec().BootedWithUKI = s.SecureBoot, s.Signed
		}),
	}

	for i, e := range s.Extensions {
		list = append(list, s.extensionStatus(i, e.Name, e.Version))
	}

	if s.Schematic != "" {
		list = append(list, s.extensionStatus(len(s.Extensions), "schematic", s.Schematic))
	}

	for _, svc := range s.Services {
		list = append(list, WithSpec(v1alpha1.NewService(svc.Name), func(r *v1alpha1.Service) {
			spec := r.TypedSpec()
			spec.Running, spec.Healthy, spec.Unknown = svc.State == services.Running, svc.Healthy(), svc.Unknown
		}))
	}

	return list
}

// machineConfig returns the resources of the configuration. Talos shows the persisted one only if it was written since
// the boot.
func machineConfig(cfg, persisted config.Provider) []resource.Resource {
	var list []resource.Resource

	machineType := configres.NewMachineType()
	machineType.SetMachineType(cfg.Machine().Type())

	if persisted != nil {
		list = append(list, configres.NewMachineConfigWithID(persisted, configres.PersistentID))
	}

	return append(list, configres.NewMachineConfigWithID(cfg, configres.ActiveID), machineType)
}

// extensionStatus returns an extension as Talos lists it: by index, with its short name. The pseudo extension
// "schematic" has the schematic's id as version.
func (s System) extensionStatus(place int, name, version string) resource.Resource {
	return WithSpec(runtime.NewExtensionStatus(
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

// secretResources returns the resources that only administrators can read.
func secretResources(cfg config.Provider) []resource.Resource {
	security := cfg.Machine().Security()

	list := []resource.Resource{
		WithSpec(secrets.NewOSRoot(secrets.OSRootID), func(r *secrets.OSRoot) {
			r.TypedSpec().IssuingCA = security.IssuingCA()
			r.TypedSpec().AcceptedCAs = security.AcceptedCAs()
			r.TypedSpec().Token = security.Token()
		}),
	}

	if cfg.Machine().Type().IsControlPlane() {
		list = append(list,
			WithSpec(secrets.NewKubernetesRoot(secrets.KubernetesRootID), func(r *secrets.KubernetesRoot) {
				r.TypedSpec().Name = configuration.ClusterName(cfg)
				r.TypedSpec().Endpoint = configuration.Endpoint(cfg)

				if ca := cfg.K8sAPIServerCAConfig(); ca != nil {
					r.TypedSpec().IssuingCA, r.TypedSpec().AcceptedCAs = ca.IssuingCA(), ca.AcceptedCAs()
				}
			}),
			WithSpec(secrets.NewEtcdRoot(secrets.EtcdRootID), func(r *secrets.EtcdRoot) {
				r.TypedSpec().EtcdCA = cfg.Cluster().Etcd().CA()
			}),
		)
	}

	return list
}
