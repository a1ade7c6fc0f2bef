package resources

import (
	"net/netip"
	"slices"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"

	"talos-proxmox/lab/machine/configuration"
)

// Kubernetes returns the resources of a machine as a node and, on a control plane, of its components. Addresses of the
// node that it does not have are invalid; final adds the final form of the static pods' settings. Static pods are their
// statuses by namespace and name.
func Kubernetes(
	cfg config.Provider, hostname string, addresses []netip.Addr, final bool, staticPods map[string]map[string]any,
) []resource.Resource {
	list := []resource.Resource{
		WithSpec(k8s.NewNodename(k8s.NamespaceName, k8s.NodenameID), func(r *k8s.Nodename) {
			r.TypedSpec().Nodename = hostname
			r.TypedSpec().SkipNodeRegistration = cfg.K8sNodeConfig().SkipNodeRegistration()
		}),
		WithSpec(k8s.NewKubeletSpec(k8s.NamespaceName, k8s.KubeletID), func(r *k8s.KubeletSpec) {
			r.TypedSpec().Image, r.TypedSpec().ExpectedNodename = cfg.K8sKubeletConfig().Image(), hostname
		}),
	}

	addresses = slices.DeleteFunc(addresses, func(a netip.Addr) bool { return !a.IsValid() })
	if len(addresses) > 0 {
		list = append(
			list,
			WithSpec(
				k8s.NewNodeIP(k8s.NamespaceName, k8s.KubeletID),
				func(r *k8s.NodeIP) { r.TypedSpec().Addresses = addresses },
			),
		)
	}

	list = append(list, ControlPlane(cfg, "")...)

	// Static pods are annotated with the versions of these
	// (internal/app/machined/pkg/controllers/k8s/control_plane_final.go of Talos 1.14). Only their versions are read, so
	// they keep the settings where Talos has the resulting arguments.
	if final {
		list = append(list, ControlPlane(cfg, k8s.FinalPrefix)...)
	}

	for name, status := range staticPods {
		list = append(
			list,
			WithSpec(
				k8s.NewStaticPodStatus(k8s.NamespaceName, name), func(r *k8s.StaticPodStatus) { r.TypedSpec().PodStatus = status },
			),
		)
	}

	return list
}

// ControlPlane returns the settings of the control plane's static pods, with prefixed ids. Their versions count the
// changes.
func ControlPlane(cfg config.Provider, prefix string) []resource.Resource {
	if !cfg.Machine().Type().IsControlPlane() {
		return nil
	}

	server, manager, scheduler := cfg.K8sAPIServerConfig(), cfg.K8sControllerManagerConfig(), cfg.K8sSchedulerConfig()
	network := configuration.Network(cfg)
	services := configuration.Strings(network.ServiceCIDRs())

	return []resource.Resource{
		WithSpec(k8s.NewAPIServerConfig(prefix+k8s.APIServerConfigID), func(r *k8s.APIServerConfig) {
			s := r.TypedSpec()
			s.Image, s.ExtraArgs = server.Image(), argValues(server.ExtraArgs())
			s.ControlPlaneEndpoint = configuration.Endpoint(cfg).String()
			s.LocalPort, s.ServiceCIDRs = server.APIPort(), services
		}),
		WithSpec(k8s.NewControllerManagerConfig(prefix+k8s.ControllerManagerConfigID), func(r *k8s.ControllerManagerConfig) {
			s := r.TypedSpec()
			s.Enabled, s.Image, s.ExtraArgs = manager.Enabled(), manager.Image(), argValues(manager.ExtraArgs())
			s.PodCIDRs, s.ServiceCIDRs = configuration.Strings(network.PodCIDRs()), services
		}),
		WithSpec(k8s.NewSchedulerConfig(prefix+k8s.SchedulerConfigID), func(r *k8s.SchedulerConfig) {
			s := r.TypedSpec()
			s.Enabled, s.Image, s.ExtraArgs = scheduler.Enabled(), scheduler.Image(), argValues(scheduler.ExtraArgs())
			s.Config = scheduler.Config()
		}),
	}
}

func argValues(args map[string][]string) map[string]k8s.ArgValues {
	values := make(map[string]k8s.ArgValues, len(args))
	for name, list := range args {
		values[name] = k8s.ArgValues{Values: list}
	}

	return values
}
