package resources

import (
	"net/netip"
	"slices"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	clusterres "github.com/siderolabs/talos/pkg/machinery/resources/cluster"

	"talos-proxmox/lab/machine/configuration"
)

// Cluster is what a machine knows of its cluster.
type Cluster struct {
	Config config.Provider
	// Persisted is the configuration on the disk where it was written since the boot, or nil.
	Persisted config.Provider
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
	id, _, discovery := configuration.Discovers(k.Config)

	list := slices.Concat(machineConfig(k.Config, k.Persisted), secretsOf(k.Config), []resource.Resource{
		Filled(clusterres.NewInfo(), func(r *clusterres.Info) {
			r.TypedSpec().ClusterID, r.TypedSpec().ClusterName = id, configuration.ClusterName(k.Config)
		}),
	})

	if discovery {
		for _, o := range k.Discovered {
			list = append(list, o.resource())
		}
	}

	return list
}

func (m Member) resource() resource.Resource {
	return Filled(clusterres.NewMember(clusterres.NamespaceName, m.Hostname), func(r *clusterres.Member) {
		s := r.TypedSpec()
		s.NodeID, s.Addresses, s.Hostname, s.MachineType = m.NodeID, m.Addresses, m.Hostname, m.Type
		s.OperatingSystem = "Talos (" + m.Version + ")"

		if m.Type.IsControlPlane() {
			s.ControlPlane = &clusterres.ControlPlane{APIServerPort: m.APIServerPort}
		}
	})
}
