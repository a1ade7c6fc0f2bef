package machine

import (
	"github.com/cosi-project/runtime/pkg/resource"
	clusterres "github.com/siderolabs/talos/pkg/machinery/resources/cluster"
	etcdres "github.com/siderolabs/talos/pkg/machinery/resources/etcd"

	"proxmox-talos/lab/machine/resources"
)

func (m *machine) describeCluster() []resource.Resource {
	c := m.config.Cluster()
	discovery := c.Discovery().Enabled()

	list := []resource.Resource{
		resources.Filled(clusterres.NewIdentity(clusterres.NamespaceName, clusterres.LocalIdentity), func(r *clusterres.Identity) { r.TypedSpec().NodeID = m.disk.NodeID }),
		resources.Filled(clusterres.NewInfo(), func(r *clusterres.Info) { r.TypedSpec().ClusterID, r.TypedSpec().ClusterName = c.ID(), c.Name() }),
		resources.Filled(clusterres.NewConfig(configNamespace, clusterres.ConfigID), func(r *clusterres.Config) {
			s := r.TypedSpec()
			s.DiscoveryEnabled, s.ServiceClusterID = discovery, c.ID()
			s.RegistryServiceEnabled, s.RegistryKubernetesEnabled = c.Discovery().Registries().Service().Enabled(), c.Discovery().Registries().Kubernetes().Enabled()
		}),
	}

	if m.isControlPlane() {
		list = append(list, resources.Filled(etcdres.NewSpec(etcdres.NamespaceName, etcdres.SpecID), func(r *etcdres.Spec) {
			s := r.TypedSpec()
			s.Name, s.Image = m.hostname, c.Etcd().Image()

			if a := m.etcdAddress(); a.IsValid() {
				s.AdvertisedAddresses = append(s.AdvertisedAddresses, a)
			}
		}))
	}

	if m.etcd != nil {
		list = append(list, resources.Filled(etcdres.NewMember(etcdres.NamespaceName, etcdres.LocalMemberID), func(r *etcdres.Member) {
			r.TypedSpec().MemberID = formatMember(m.disk.Etcd.MemberID)
		}))
	}

	if !discovery {
		return list
	}

	for _, o := range m.discovered() {
		list = append(list, o.member(), o.affiliate())
	}

	return list
}

// configNamespace is where Talos keeps clusterres.Config.
const configNamespace = "config"

func (m *machine) osName() string { return "Talos (" + m.system.Version + ")" }

func (m *machine) controlPlaneInfo() *clusterres.ControlPlane {
	if !m.isControlPlane() {
		return nil
	}

	return &clusterres.ControlPlane{APIServerPort: m.config.Cluster().LocalAPIServerPort()}
}

func (m *machine) member() resource.Resource {
	return resources.Filled(clusterres.NewMember(clusterres.NamespaceName, m.hostname), func(r *clusterres.Member) {
		s := r.TypedSpec()
		s.NodeID, s.Addresses, s.Hostname, s.MachineType = m.disk.NodeID, m.serveAddresses(), m.hostname, m.config.Machine().Type()
		s.OperatingSystem, s.ControlPlane = m.osName(), m.controlPlaneInfo()
	})
}

func (m *machine) affiliate() resource.Resource {
	return resources.Filled(clusterres.NewAffiliate(clusterres.NamespaceName, m.disk.NodeID), func(r *clusterres.Affiliate) {
		s := r.TypedSpec()
		s.NodeID, s.Addresses, s.Hostname, s.Nodename, s.MachineType = m.disk.NodeID, m.serveAddresses(), m.hostname, m.hostname, m.config.Machine().Type()
		s.OperatingSystem, s.ControlPlane = m.osName(), m.controlPlaneInfo()
	})
}
