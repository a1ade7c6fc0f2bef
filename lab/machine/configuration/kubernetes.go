package configuration

import (
	"net/netip"
	"net/url"

	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/constants"

	"talos-proxmox/internal/talos"
)

// Network returns the network of pods and services. A configuration without cluster.network and without the document
// that replaces it has Talos' defaults.
func Network(cfg config.Config) config.K8sNetworkConfig {
	if network := cfg.K8sNetworkConfig(); network != nil {
		return network
	}

	return &v1alpha1.ClusterConfig{}
}

// EtcdImage returns the image of the configuration, or the release's default.
func EtcdImage(cfg config.Config, release talos.Release) string {
	if etcd, ok := cfg.Cluster().Etcd().(*v1alpha1.EtcdConfig); ok && etcd.ContainerImage == "" {
		return constants.EtcdImage + ":" + release.Etcd
	}

	return cfg.Cluster().Etcd().Image()
}

// CoreDNSImage returns the image of the configuration, or the release's default.
func CoreDNSImage(cfg config.Config, release talos.Release) string {
	if dns, ok := cfg.K8sCoreDNSConfig().(*v1alpha1.CoreDNS); ok && dns.CoreDNSImage == "" {
		return constants.CoreDNSImage + ":" + release.CoreDNS
	}

	return cfg.K8sCoreDNSConfig().Image()
}

// ClusterName returns the cluster's name; empty if the configuration has none.
func ClusterName(cfg config.Config) string {
	if cluster := cfg.K8sClusterConfig(); cluster != nil {
		return cluster.ClusterName()
	}

	return ""
}

// Endpoint returns the cluster's endpoint; an empty URL if the configuration has none.
func Endpoint(cfg config.Config) *url.URL {
	if cluster := cfg.K8sClusterConfig(); cluster != nil {
		return cluster.ClusterEndpoint()
	}

	return &url.URL{}
}

// DiscoveryIdentity returns the identity with which a machine discovers others, and whether it uses the discovery
// service.
func DiscoveryIdentity(cfg config.Config) (id, secret string, enabled bool) {
	identity := cfg.DiscoveryIdentityConfig()
	if identity == nil {
		return "", "", false
	}

	return identity.ClusterID(), identity.ClusterSecret(), len(cfg.DiscoveryServiceConfigs()) > 0
}

// Strings formats networks.
func Strings(networks []netip.Prefix) []string {
	list := make([]string, 0, len(networks))
	for _, n := range networks {
		list = append(list, n.String())
	}

	return list
}
