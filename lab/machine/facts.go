package machine

import (
	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/state"

	"talos-proxmox/lab/machine/manifests"
	"talos-proxmox/lab/machine/pods"
	"talos-proxmox/lab/machine/resources"
	"talos-proxmox/lab/machine/services"
)

// shown is the machine as its resources see it. It implements resources.Machine.
type shown struct{ *machine }

// Describe implements resources.Machine.
func (m shown) Describe() []resource.Resource {
	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	list := m.systemFacts().Resources()
	list = append(list, m.kernel.Resources()...)
	list = append(list, m.disks.Resources(m.config, m.release)...)
	list = append(list, m.net.Resources(m.hostname, m.heldIPs())...)

	if m.config != nil {
		list = append(list, m.clusterFacts().Resources()...)
		list = append(list, m.kubernetesFacts().Resources()...)

		if m.isControlPlane() {
			list = append(list, manifests.Settings(m.config, m.release))
		}
	}

	return list
}

// Changed implements resources.Machine.
func (m shown) Changed() (mine, others <-chan struct{}) {
	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	if m.cluster != nil {
		others = m.cluster.changed.wait()
	}

	return m.changed.wait(), others
}

// Fail implements resources.Machine.
func (m shown) Fail(reason string) { m.fail("%s", reason) }

// resources are the machine's COSI resources, up to date.
func (m *machine) resources() state.State {
	m.ms.mu.Lock()
	shows := m.cosi
	m.ms.mu.Unlock()

	return shows.Current()
}

func (m *machine) systemFacts() resources.System {
	facts := resources.System{
		Schematic: m.system.Schematic, Stage: m.stage, Unmet: m.unmet(),
	}

	for _, e := range m.extensions {
		facts.Extensions = append(facts.Extensions, resources.Extension(e))
	}

	for _, s := range m.services.List() {
		facts.Services = append(facts.Services, resources.Service{
			Name: s.Name, Running: s.State == services.Running, Healthy: s.Healthy(), Unknown: s.Unknown,
		})
	}

	return facts
}

// asMember is the machine as others discover it.
func (m *machine) asMember() resources.Member {
	return resources.Member{
		NodeID: m.disk.NodeID, Hostname: m.hostname, Version: m.system.Version, Addresses: m.serveAddresses(),
		Type: m.config.Machine().Type(), APIServerPort: m.config.K8sAPIServerConfig().APIPort(),
	}
}

func (m *machine) clusterFacts() resources.Cluster {
	facts := resources.Cluster{Config: m.config, Persisted: m.persisted}

	for _, o := range m.discovered() {
		facts.Discovered = append(facts.Discovered, o.asMember())
	}

	return facts
}

func (m *machine) kubernetesFacts() resources.Kubernetes {
	facts := resources.Kubernetes{
		Config: m.config, Hostname: m.hostname, NodeIP: m.net.Node, FinalSettings: m.release.FinalSettings,
		StaticPods: map[string]map[string]any{},
	}

	if m.isControlPlane() {
		for _, one := range m.manifests() {
			facts.Manifests = append(facts.Manifests, resources.Manifest{ID: one.ID, Objects: one.Objects()})
		}
	}

	for _, pod := range m.staticPods() {
		facts.StaticPods[pod.Namespace+"/"+pod.Pod] = pods.StaticStatus(pod, m.net.Node.String(), m.bootedAt, m.apiReady())
	}

	return facts
}
