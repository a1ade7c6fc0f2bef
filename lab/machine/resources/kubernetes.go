package resources

import (
	"net/netip"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	corev1 "k8s.io/api/core/v1"
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
			r.TypedSpec().SkipNodeRegistration = k.Config.Machine().Kubelet().SkipNodeRegistration()
		}),
		Filled(k8s.NewKubeletSpec(k8s.NamespaceName, k8s.KubeletID), func(r *k8s.KubeletSpec) {
			r.TypedSpec().Image, r.TypedSpec().ExpectedNodename = k.Config.Machine().Kubelet().Image(), k.Hostname
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

	prism := k.Config.Machine().Features().KubePrism()
	if !prism.Enabled() {
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

	c := cfg.Cluster()

	return []resource.Resource{
		Filled(k8s.NewAPIServerConfig(), func(r *k8s.APIServerConfig) {
			s := r.TypedSpec()
			s.Image = c.APIServer().Image()
			s.ExtraArgs = c.APIServer().ExtraArgs()
			s.ControlPlaneEndpoint = c.Endpoint().String()
			s.LocalPort, s.ServiceCIDRs = c.LocalAPIServerPort(), c.Network().ServiceCIDRs()
		}),
		Filled(k8s.NewControllerManagerConfig(), func(r *k8s.ControllerManagerConfig) {
			s := r.TypedSpec()
			s.Enabled, s.Image, s.ExtraArgs = true, c.ControllerManager().Image(), c.ControllerManager().ExtraArgs()
			s.PodCIDRs, s.ServiceCIDRs = c.Network().PodCIDRs(), c.Network().ServiceCIDRs()
		}),
		Filled(k8s.NewSchedulerConfig(), func(r *k8s.SchedulerConfig) {
			s := r.TypedSpec()
			s.Enabled = true
			s.Image = c.Scheduler().Image()
			s.ExtraArgs = c.Scheduler().ExtraArgs()
			s.Config = c.Scheduler().Config()
		}),
	}
}
