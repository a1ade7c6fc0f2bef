package machine

import (
	"net/netip"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/state"
	clusterres "github.com/siderolabs/talos/pkg/machinery/resources/cluster"

	"talos-proxmox/lab/machine/manifests"
	"talos-proxmox/lab/machine/pods"
	"talos-proxmox/lab/machine/resources"
)

// Describe implements resources.Machine.
func (m *machine) Describe() []resource.Resource {
	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	list := m.systemFacts().Resources()
	list = append(list, m.kernel.Resources()...)
	list = append(list, m.disks.Resources(m.config, m.release)...)
	list = append(list, m.net.Resources(m.hostname, m.heldVIPs())...)

	if m.config == nil {
		return list
	}

	list = append(list, resources.Cluster(m.config, m.persisted, m.discoveredMembers())...)
	list = append(list, m.nodeResources()...)

	if m.isControlPlane() {
		list = append(list, manifests.BootstrapConfig(m.config, m.release))

		for _, manifest := range m.manifests() {
			list = append(list, manifest.Resource())
		}
	}

	return list
}

// Changes implements resources.Machine.
func (m *machine) Changes() (machine, cluster <-chan struct{}) {
	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	if m.cluster != nil {
		cluster = m.cluster.changed.wait()
	}

	return m.changed.wait(), cluster
}

// Resources returns the machine's COSI resources, up to date.
func (m *machine) Resources() state.State {
	m.ms.mu.Lock()
	cosi := m.cosi
	m.ms.mu.Unlock()

	return cosi.Current()
}

func (m *machine) systemFacts() resources.System {
	facts := resources.System{
		Schematic: m.system.Schematic, SecureBoot: m.security.SecureBoot, Signed: m.security.Signed,
		Stage: m.stage, Unmet: m.unmet(), Services: m.services.List(),
	}

	for _, e := range m.extensions {
		facts.Extensions = append(facts.Extensions, resources.Extension(e))
	}

	return facts
}

// discoveredMembers returns the discovered machines as resources.
func (m *machine) discoveredMembers() []*clusterres.Member {
	found := m.discovered()
	list := make([]*clusterres.Member, 0, len(found))

	for _, o := range found {
		member := clusterres.NewMember(clusterres.NamespaceName, o.hostname)
		spec := member.TypedSpec()
		spec.NodeID, spec.Hostname, spec.Addresses = o.disk.NodeID, o.hostname, o.apiAddresses()
		spec.MachineType, spec.OperatingSystem = o.config.Machine().Type(), "Talos ("+o.system.Version+")"

		if o.isControlPlane() {
			spec.ControlPlane = &clusterres.ControlPlane{APIServerPort: o.config.K8sAPIServerConfig().APIPort()}
		}

		list = append(list, member)
	}

	return list
}

// nodeResources returns the machine's resources as a node.
func (m *machine) nodeResources() []resource.Resource {
	statuses := map[string]map[string]any{}
	for _, pod := range m.staticPods() {
		statuses[pod.Namespace+"/"+pod.Pod] = pods.StaticStatus(pod, m.net.Node.String(), m.bootedAt, m.apiReady())
	}

	addresses := []netip.Addr{m.net.Node, m.net.NodeIPv6}

	return resources.Kubernetes(m.config, m.hostname, addresses, m.release.FinalSettings, statuses)
}
