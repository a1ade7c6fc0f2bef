package machine

import (
	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"

	"proxmox-talos/lab/machine/resources"
)

// describeManifests are the manifests of the configuration and those that this control plane has applied; the caller holds the lock.
func (m *machine) describeManifests() []resource.Resource {
	if !m.isControlPlane() {
		return nil
	}

	var list []resource.Resource

	for _, one := range m.manifests() {
		list = append(list, resources.Filled(k8s.NewManifest(k8s.ControlPlaneNamespaceName, one.id), func(r *k8s.Manifest) {
			for _, object := range one.objects() {
				r.TypedSpec().Items = append(r.TypedSpec().Items, k8s.SingleManifest{Object: object})
			}
		}))
	}

	if len(m.applied) > 0 {
		list = append(list, resources.Filled(k8s.NewManifestStatus(k8s.ControlPlaneNamespaceName), func(r *k8s.ManifestStatus) { r.TypedSpec().ManifestsApplied = m.applied }))
	}

	return list
}

// describeNodeSpecs are what Talos wants of its node, and KubePrism; the caller holds the lock.
func (m *machine) describeNodeSpecs() []resource.Resource {
	var list []resource.Resource

	for key, value := range m.talosLabels() {
		list = append(list, resources.Filled(k8s.NewNodeLabelSpec(key), func(r *k8s.NodeLabelSpec) { r.TypedSpec().Key, r.TypedSpec().Value = key, value }))
	}

	for _, t := range m.talosTaints() {
		list = append(list, resources.Filled(k8s.NewNodeTaintSpec(t.Key), func(r *k8s.NodeTaintSpec) {
			r.TypedSpec().Key, r.TypedSpec().Value, r.TypedSpec().Effect = t.Key, t.Value, t.Effect
		}))
	}

	prism := m.config.Machine().Features().KubePrism()
	if !prism.Enabled() {
		return list
	}

	list = append(list, resources.Filled(k8s.NewKubePrismConfig(k8s.NamespaceName, k8s.KubePrismConfigID), func(r *k8s.KubePrismConfig) {
		s := r.TypedSpec()
		s.Host, s.Port = "127.0.0.1", prism.Port()

		for _, o := range m.kubePrismEndpoints() {
			s.Endpoints = append(s.Endpoints, k8s.KubePrismEndpoint{Host: o.net.Node.String(), Port: uint32(o.config.Cluster().LocalAPIServerPort())})
		}
	}))

	for _, o := range m.kubePrismEndpoints() {
		list = append(list, resources.Filled(k8s.NewKubePrismStatuses(k8s.NamespaceName, o.net.Node.String()), func(r *k8s.KubePrismStatuses) {
			r.TypedSpec().Host, r.TypedSpec().Healthy = o.net.Node.String(), o.apiReady()
		}))
	}

	return list
}

// kubePrismEndpoints are the control planes that the machine knows of.
func (m *machine) kubePrismEndpoints() []*machine {
	var found []*machine

	for _, o := range m.cluster.controlPlanes() {
		if o.net.Node.IsValid() && (o == m || m.discovers(o)) {
			found = append(found, o)
		}
	}

	return found
}

// describeControlPlane are the settings of the control plane's static pods: their versions count the changes; the caller
// holds the lock.
func (m *machine) describeControlPlane() []resource.Resource {
	if !m.isControlPlane() {
		return nil
	}

	c := m.config.Cluster()

	return []resource.Resource{
		resources.Filled(k8s.NewAPIServerConfig(), func(r *k8s.APIServerConfig) {
			s := r.TypedSpec()
			s.Image, s.ExtraArgs, s.ControlPlaneEndpoint = c.APIServer().Image(), c.APIServer().ExtraArgs(), c.Endpoint().String()
			s.LocalPort, s.ServiceCIDRs = c.LocalAPIServerPort(), c.Network().ServiceCIDRs()
		}),
		resources.Filled(k8s.NewControllerManagerConfig(), func(r *k8s.ControllerManagerConfig) {
			s := r.TypedSpec()
			s.Enabled, s.Image, s.ExtraArgs = true, c.ControllerManager().Image(), c.ControllerManager().ExtraArgs()
			s.PodCIDRs, s.ServiceCIDRs = c.Network().PodCIDRs(), c.Network().ServiceCIDRs()
		}),
		resources.Filled(k8s.NewSchedulerConfig(), func(r *k8s.SchedulerConfig) {
			s := r.TypedSpec()
			s.Enabled, s.Image, s.ExtraArgs, s.Config = true, c.Scheduler().Image(), c.Scheduler().ExtraArgs(), c.Scheduler().Config()
		}),
	}
}
