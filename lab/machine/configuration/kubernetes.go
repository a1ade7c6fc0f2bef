package configuration

import (
	"net/netip"
	"net/url"

	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/constants"

	"talos-proxmox/internal/talos"
)

// Network is the network of pods and services. A configuration without cluster.network, and without the document that
// replaces it, has Talos' own.
func Network(cfg config.Config) config.K8sNetworkConfig {
	if network := cfg.K8sNetworkConfig(); network != nil {
		return network
	}

	return &v1alpha1.ClusterConfig{}
}

// EtcdImage is the configuration's, or what the release brings.
func EtcdImage(cfg config.Config, release talos.Release) string {
	if etcd, ok := cfg.Cluster().Etcd().(*v1alpha1.EtcdConfig); ok && etcd.ContainerImage == "" {
		return constants.EtcdImage + ":" + release.Etcd
	}

	return cfg.Cluster().Etcd().Image()
}

// CoreDNSImage is the configuration's, or what the release brings.
func CoreDNSImage(cfg config.Config, release talos.Release) string {
	if dns, ok := cfg.K8sCoreDNSConfig().(*v1alpha1.CoreDNS); ok && dns.CoreDNSImage == "" {
		return constants.CoreDNSImage + ":" + release.CoreDNS
	}

	return cfg.K8sCoreDNSConfig().Image()
}

// ClusterName is the cluster's; empty where the configuration names none.
func ClusterName(cfg config.Config) string {
	if cluster := cfg.K8sClusterConfig(); cluster != nil {
		return cluster.ClusterName()
	}

	return ""
}

// Endpoint is the cluster's; an empty URL where the configuration states none.
func Endpoint(cfg config.Config) *url.URL {
	if cluster := cfg.K8sClusterConfig(); cluster != nil {
		return cluster.ClusterEndpoint()
	}

	return &url.URL{}
}

// DiscoveryIdentity says whether a machine finds others through the discovery service, and by what identity.
func DiscoveryIdentity(cfg config.Config) (id, secret string, enabled bool) {
	identity := cfg.DiscoveryIdentityConfig()
	if identity == nil {
		return "", "", false
	}

	return identity.ClusterID(), identity.ClusterSecret(), len(cfg.DiscoveryServiceConfigs()) > 0
}

// Strings are networks as texts.
func Strings(networks []netip.Prefix) []string {
	list := make([]string, 0, len(networks))
	for _, n := range networks {
		list = append(list, n.String())
	}

	return list
}
