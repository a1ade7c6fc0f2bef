package resources

import (
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	corev1 "k8s.io/api/core/v1"

	"talos-proxmox/lab/machine/configuration"
)

// Kubernetes is a machine as a node, and on a control plane what it runs.
type Kubernetes struct {
	Config   config.Provider
	Hostname string
	// NodeIP is invalid where the machine has none.
	NodeIP netip.Addr
	// Node is what the API says of it; nil while it says nothing.
	Node *k8s.NodeStatusSpec
	// Labels and Taints are those that Talos wants the node to have.
	Labels map[string]string
	Taints []corev1.Taint
	// Endpoints are the API servers behind KubePrism.
	Endpoints []Endpoint
	// Manifests are those of the configuration, Applied the ids of those that this control plane has applied.
	Manifests []Manifest
	Applied   []string
	// FinalSettings says whether the settings of static pods are shown with their arguments, too.
	FinalSettings bool
	// StaticPods are their statuses by namespace and name.
	StaticPods map[string]map[string]any
}

// Endpoint is an API server that KubePrism knows.
type Endpoint struct {
	Address netip.Addr
	Port    int
	Healthy bool
}

// Manifest is a list of objects that Talos applies.
type Manifest struct {
	ID      string
	Objects []map[string]any
}

// Resources are those of the node and the control plane.
func (k Kubernetes) Resources() []resource.Resource {
	list := []resource.Resource{
		Filled(k8s.NewNodename(k8s.NamespaceName, k8s.NodenameID), func(r *k8s.Nodename) {
			r.TypedSpec().Nodename = k.Hostname
			r.TypedSpec().SkipNodeRegistration = k.Config.K8sNodeConfig().SkipNodeRegistration()
		}),
		Filled(k8s.NewKubeletSpec(k8s.NamespaceName, k8s.KubeletID), func(r *k8s.KubeletSpec) {
			r.TypedSpec().Image, r.TypedSpec().ExpectedNodename = k.Config.K8sKubeletConfig().Image(), k.Hostname
		}),
	}

	if k.NodeIP.IsValid() {
		list = append(
			list,
			Filled(
				k8s.NewNodeIP(k8s.NamespaceName, k8s.KubeletID),
				func(r *k8s.NodeIP) { r.TypedSpec().Addresses = append(r.TypedSpec().Addresses, k.NodeIP) },
			),
		)
	}

	if k.Node != nil {
		list = append(
			list,
			Filled(k8s.NewNodeStatus(k8s.NamespaceName, k.Node.Nodename), func(r *k8s.NodeStatus) { *r.TypedSpec() = *k.Node }),
		)
	}

	list = append(list, ControlPlane(k.Config)...)

	if k.FinalSettings {
		list = append(list, final(k.Config)...)
	}

	list = append(list, k.manifests()...)
	list = append(list, k.specs()...)

	for name, status := range k.StaticPods {
		list = append(
			list,
			Filled(
				k8s.NewStaticPodStatus(k8s.NamespaceName, name), func(r *k8s.StaticPodStatus) { r.TypedSpec().PodStatus = status },
			),
		)
	}

	return list
}

// manifests are the manifests of the configuration and those that this control plane has applied.
func (k Kubernetes) manifests() []resource.Resource {
	if !k.Config.Machine().Type().IsControlPlane() {
		return nil
	}

	var list []resource.Resource

	for _, one := range k.Manifests {
		list = append(list, Filled(k8s.NewManifest(k8s.ControlPlaneNamespaceName, one.ID), func(r *k8s.Manifest) {
			for _, object := range one.Objects {
				r.TypedSpec().Items = append(r.TypedSpec().Items, k8s.SingleManifest{Object: object})
			}
		}))
	}

	if len(k.Applied) > 0 {
		list = append(
			list,
			Filled(
				k8s.NewManifestStatus(k8s.ControlPlaneNamespaceName),
				func(r *k8s.ManifestStatus) { r.TypedSpec().ManifestsApplied = k.Applied },
			),
		)
	}

	return list
}

// specs are what Talos wants of its node, and KubePrism.
func (k Kubernetes) specs() []resource.Resource {
	var list []resource.Resource

	for key, value := range k.Labels {
		list = append(
			list,
			Filled(
				k8s.NewNodeLabelSpec(key), func(r *k8s.NodeLabelSpec) { r.TypedSpec().Key, r.TypedSpec().Value = key, value },
			),
		)
	}

	for _, t := range k.Taints {
		list = append(list, Filled(k8s.NewNodeTaintSpec(t.Key), func(r *k8s.NodeTaintSpec) {
			r.TypedSpec().Key, r.TypedSpec().Value, r.TypedSpec().Effect = t.Key, t.Value, string(t.Effect)
		}))
	}

	prism := k.Config.K8sKubePrismConfig()
	if prism == nil {
		return list
	}

	list = append(list, Filled(k8s.NewKubePrismConfig(
		k8s.NamespaceName, k8s.KubePrismConfigID,
	), func(r *k8s.KubePrismConfig) {
		s := r.TypedSpec()
		s.Host, s.Port = "127.0.0.1", prism.Port()

		for _, o := range k.Endpoints {
			s.Endpoints = append(s.Endpoints, k8s.KubePrismEndpoint{Host: o.Address.String(), Port: uint32(o.Port)})
		}
	}))

	for _, o := range k.Endpoints {
		list = append(list, Filled(k8s.NewKubePrismStatuses(
			k8s.NamespaceName, o.Address.String(),
		), func(r *k8s.KubePrismStatuses) {
			r.TypedSpec().Host, r.TypedSpec().Healthy = o.Address.String(), o.Healthy
		}))
	}

	return list
}

// ControlPlane are the settings of the control plane's static pods: their versions count the changes.
func ControlPlane(cfg config.Provider) []resource.Resource {
	if !cfg.Machine().Type().IsControlPlane() {
		return nil
	}

	server, manager, scheduler := cfg.K8sAPIServerConfig(), cfg.K8sControllerManagerConfig(), cfg.K8sSchedulerConfig()
	network := configuration.Network(cfg)
	services := configuration.Texts(network.ServiceCIDRs())

	return []resource.Resource{
		Filled(k8s.NewAPIServerConfig(k8s.APIServerConfigID), func(r *k8s.APIServerConfig) {
			s := r.TypedSpec()
			s.Image, s.ExtraArgs = server.Image(), argValues(server.ExtraArgs())
			s.ControlPlaneEndpoint = configuration.Endpoint(cfg).String()
			s.LocalPort, s.ServiceCIDRs = server.APIPort(), services
		}),
		Filled(k8s.NewControllerManagerConfig(k8s.ControllerManagerConfigID), func(r *k8s.ControllerManagerConfig) {
			s := r.TypedSpec()
			s.Enabled, s.Image, s.ExtraArgs = manager.Enabled(), manager.Image(), argValues(manager.ExtraArgs())
			s.PodCIDRs, s.ServiceCIDRs = configuration.Texts(network.PodCIDRs()), services
		}),
		Filled(k8s.NewSchedulerConfig(k8s.SchedulerConfigID), func(r *k8s.SchedulerConfig) {
			s := r.TypedSpec()
			s.Enabled, s.Image, s.ExtraArgs = scheduler.Enabled(), scheduler.Image(), argValues(scheduler.ExtraArgs())
			s.Config = scheduler.Config()
		}),
	}
}

// final are the settings of static pods with arguments in the place of what these are made of
// (internal/app/machined/pkg/controllers/k8s/control_plane_final.go of Talos 1.14). Of the arguments, those that follow
// from the configuration are shown.
func final(cfg config.Provider) []resource.Resource {
	var list []resource.Resource

	for _, r := range ControlPlane(cfg) {
		switch plain := r.(type) {
		case *k8s.APIServerConfig:
			list = append(list, Filled(k8s.NewAPIServerConfig(k8s.FinalAPIServerConfigID), func(r *k8s.APIServerConfig) {
				s := r.TypedSpec()
				*s = *plain.TypedSpec()
				s.Args, s.ExtraArgs = arguments(k8s.APIServerID, s.ExtraArgs, map[string]string{
					"secure-port": strconv.Itoa(s.LocalPort), "service-cluster-ip-range": strings.Join(s.ServiceCIDRs, ","),
				}), nil
			}))
		case *k8s.ControllerManagerConfig:
			list = append(list, Filled(
				k8s.NewControllerManagerConfig(k8s.FinalControllerManagerConfigID), func(r *k8s.ControllerManagerConfig) {
					s := r.TypedSpec()
					s.Enabled, s.Image = plain.TypedSpec().Enabled, plain.TypedSpec().Image
					s.Args = arguments(k8s.ControllerManagerID, plain.TypedSpec().ExtraArgs, map[string]string{
						"cluster-cidr":             strings.Join(plain.TypedSpec().PodCIDRs, ","),
						"service-cluster-ip-range": strings.Join(plain.TypedSpec().ServiceCIDRs, ","),
					})
				}))
		case *k8s.SchedulerConfig:
			list = append(list, Filled(k8s.NewSchedulerConfig(k8s.FinalSchedulerConfigID), func(r *k8s.SchedulerConfig) {
				s := r.TypedSpec()
				*s = *plain.TypedSpec()
				s.Args, s.ExtraArgs = arguments(k8s.SchedulerID, s.ExtraArgs, nil), nil
			}))
		}
	}

	return list
}

// arguments are the command of a static pod: its program and flags, those of the configuration over others.
func arguments(program string, extra map[string]k8s.ArgValues, others map[string]string) []string {
	command := []string{"/usr/local/bin/" + program}

	for _, name := range slices.Sorted(maps.Keys(others)) {
		if _, stated := extra[name]; !stated {
			command = append(command, "--"+name+"="+others[name])
		}
	}

	for _, name := range slices.Sorted(maps.Keys(extra)) {
		for _, value := range extra[name].Values {
			command = append(command, "--"+name+"="+value)
		}
	}

	return command
}

func argValues(args map[string][]string) map[string]k8s.ArgValues {
	values := make(map[string]k8s.ArgValues, len(args))
	for name, list := range args {
		values[name] = k8s.ArgValues{Values: list}
	}

	return values
}
