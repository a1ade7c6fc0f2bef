package resources

import (
	"slices"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/siderolabs/talos/pkg/machinery/config"
	clusterres "github.com/siderolabs/talos/pkg/machinery/resources/cluster"

	"talos-proxmox/lab/machine/configuration"
)

// Cluster returns the resources of a configuration and its cluster. Persisted is the configuration written to the disk
// since the boot, or nil; discovered are the members that the machine discovers, including itself.
func Cluster(cfg, persisted config.Provider, discovered []*clusterres.Member) []resource.Resource {
	id, _, discovery := configuration.DiscoveryIdentity(cfg)

	list := slices.Concat(machineConfig(cfg, persisted), secretResources(cfg), []resource.Resource{
		WithSpec(clusterres.NewInfo(), func(r *clusterres.Info) {
			r.TypedSpec().ClusterID, r.TypedSpec().ClusterName = id, configuration.ClusterName(cfg)
		}),
	})

	if discovery {
		for _, o := range discovered {
			list = append(list, o)
		}
	}

	return list
}
