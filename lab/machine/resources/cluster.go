package resources

import (
	"net/netip"
	"slices"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	clusterres "github.com/siderolabs/talos/pkg/machinery/resources/cluster"
	etcdres "github.com/siderolabs/talos/pkg/machinery/resources/etcd"

	"talos-proxmox/lab/machine/configuration"
)

// Cluster is what a machine knows of its cluster.
type Cluster struct {
	Config config.Provider
	// Persisted is the configuration on the disk where it was written since the boot, or nil.
	Persisted config.Provider
	Self      Member
	// EtcdImage is what its member runs.
	EtcdImage string
	// EtcdAddress is invalid where etcd has none, EtcdMember empty where the machine is none.
	EtcdAddress netip.Addr
	EtcdMember  string
	// Discovered are the members that the machine finds, itself included.
	Discovered []Member
}

// Member is a machine of a cluster, as others discover it.
type Member struct {
	NodeID, Hostname, Version string
	Addresses                 []netip.Addr
	Type                      machine.Type
	APIServerPort             int
}

// Resources are those of the cluster, and of the configuration that the machine is its member by.
func (k Cluster) Resources() []resource.Resource {
	c := k.Config.Cluster()
	id, _, discovery := configuration.Discovers(k.Config)

	list := slices.Concat(machineConfig(k.Config, k.Persisted), secretsOf(k.Config), []resource.Resource{
		Filled(
			clusterres.NewIdentity(clusterres.NamespaceName, clusterres.LocalIdentity),
			func(r *clusterres.Identity) { r.TypedSpec().NodeID = k.Self.NodeID },
		),
		Filled(
			clusterres.NewInfo(),
			func(r *clusterres.Info) {
				r.TypedSpec().ClusterID, r.TypedSpec().ClusterName = id, configuration.ClusterName(k.Config)
			},
		),
		Filled(clusterres.NewConfig(configNamespace, clusterres.ConfigID), func(r *clusterres.Config) {
			s := r.TypedSpec()
			s.RegistryKubernetesEnabled = c.Discovery().Enabled() && c.Discovery().Registries().Kubernetes().Enabled()

			//nolint:staticcheck // what machines before Talos 1.14 show, and 1.14 still does
			s.DiscoveryEnabled, s.RegistryServiceEnabled = discovery || s.RegistryKubernetesEnabled, discovery

			if discovery {
				s.ServiceClusterID = id
			}
		}),
	})

	if k.Self.Type.IsControlPlane() {
		list = append(list, Filled(etcdres.NewSpec(etcdres.NamespaceName, etcdres.SpecID), func(r *etcdres.Spec) {
			s := r.TypedSpec()
			s.Name, s.Image = k.Self.Hostname, k.EtcdImage

			if k.EtcdAddress.IsValid() {
				s.AdvertisedAddresses = append(s.AdvertisedAddresses, k.EtcdAddress)
			}
		}))
	}

	if k.EtcdMember != "" {
		list = append(list, Filled(etcdres.NewMember(etcdres.NamespaceName, etcdres.LocalMemberID), func(r *etcdres.Member) {
			r.TypedSpec().MemberID = k.EtcdMember
		}))
	}

	if !discovery {
		return list
	}

	for _, o := range k.Discovered {
		list = append(list, o.member(), o.affiliate())
	}

	return list
}

// configNamespace is where Talos keeps clusterres.Config.
const configNamespace = "config"

func (m Member) osName() string { return "Talos (" + m.Version + ")" }

func (m Member) controlPlaneInfo() *clusterres.ControlPlane {
	if !m.Type.IsControlPlane() {
		return nil
	}

	return &clusterres.ControlPlane{APIServerPort: m.APIServerPort}
}

func (m Member) member() resource.Resource {
	return Filled(clusterres.NewMember(clusterres.NamespaceName, m.Hostname), func(r *clusterres.Member) {
		s := r.TypedSpec()
		s.NodeID, s.Addresses, s.Hostname, s.MachineType = m.NodeID, m.Addresses, m.Hostname, m.Type
		s.OperatingSystem, s.ControlPlane = m.osName(), m.controlPlaneInfo()
	})
}

func (m Member) affiliate() resource.Resource {
	return Filled(clusterres.NewAffiliate(clusterres.NamespaceName, m.NodeID), func(r *clusterres.Affiliate) {
		s := r.TypedSpec()
		s.NodeID, s.Addresses, s.Hostname, s.Nodename, s.MachineType = m.NodeID, m.Addresses, m.Hostname, m.Hostname, m.Type
		s.OperatingSystem, s.ControlPlane = m.osName(), m.controlPlaneInfo()
	})
}
