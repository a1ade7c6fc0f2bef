package talos

import (
	"cmp"
	"fmt"

	"github.com/siderolabs/talos/pkg/machinery/constants"
)

// form writes the settings whose place in a configuration depends on its contract, as strategic-merge patches of one
// document each. A machine refuses a configuration with both places of a setting.
type form interface {
	// cluster returns what all nodes of a role share, but for the networks of their pools.
	cluster(c ClusterConfig, n NodeConfig) []object
	// apiServer returns what control planes have for the API server.
	apiServer(a APIServer) []object
	install(i Install) object
	// certificateNames adds names and addresses to the certificate of the API server.
	certificateNames(names []string) object
	labels(labels map[string]string) object
	// marks returns a node's labels without those of its GPUs, its taints and its provider ID.
	marks(n NodeConfig) []object
	// manifest adds an inline manifest, which Talos applies when it bootstraps Kubernetes.
	manifest(name, text string) object
}

func (r Release) form() form {
	if r.KubernetesDocuments {
		return documentForm{}
	}

	return v1alpha1Form{}
}

// v1alpha1Form is the first document, v1alpha1, in which contracts up to 1.13 have everything.
type v1alpha1Form struct{}

func (f v1alpha1Form) cluster(c ClusterConfig, n NodeConfig) []object {
	docs := []object{
		{"machine": object{
			"features": object{"kubePrism": object{"enabled": true, "port": constants.DefaultKubePrismPort}},
			"kubelet":  object{"nodeIP": object{"validSubnets": kubeletSubnets(c, n)}},
		}},
		{"cluster": object{"network": object{"cni": object{"name": "none"}}, "discovery": f.discovery(c)}},
	}

	servers, names := object{}, f.names(n)
	if len(names) > 0 {
		servers["network"] = names
	}

	switch {
	case c.NTS: // which only the document has
		docs = append(docs, timeSyncConfig(c))
	case len(c.NTP) > 0:
		servers["time"] = object{"servers": c.NTP}
	}

	if len(servers) > 0 {
		docs = append(docs, object{"machine": servers})
	}

	if n.Role != RoleControlPlane {
		return docs
	}

	cluster := object{
		"proxy":                          object{"disabled": true},
		"etcd":                           object{"advertisedSubnets": nodeSubnets(c, n)},
		"allowSchedulingOnControlPlanes": c.AllowSchedulingOnControlPlanes,
	}
	if names := apiNames(c); len(names) > 0 {
		cluster["apiServer"] = object{"certSANs": names}
	}

	return append(docs, object{"cluster": cluster})
}

// names returns how a node resolves names.
func (v1alpha1Form) names(n NodeConfig) object {
	network := object{}
	if len(n.DNS) > 0 {
		network["nameservers"] = toStrings(n.DNS)
	}

	if len(n.SearchDomains) > 0 {
		network["searchDomains"] = n.SearchDomains
	}

	hosts := make([]object, 0, len(n.StaticHosts))
	for _, host := range n.StaticHosts {
		hosts = append(hosts, object{"ip": host.Address.String(), "aliases": host.Names})
	}

	if len(hosts) > 0 {
		network["extraHostEntries"] = hosts
	}

	return network
}

func (v1alpha1Form) discovery(c ClusterConfig) object {
	disabled := c.Discovery == NoDiscovery

	service := object{"disabled": disabled}
	if c.Discovery != "" && !disabled {
		service["endpoint"] = c.Discovery
	}

	return object{
		"enabled":    !disabled,
		"registries": object{"kubernetes": object{"disabled": true}, "service": service},
	}
}

func (v1alpha1Form) install(i Install) object {
	return object{"machine": object{"install": object{
		"disk": cmp.Or(i.Disk, DefaultInstallDisk), "image": i.Image, "wipe": i.Wipe,
	}}}
}

func (v1alpha1Form) certificateNames(names []string) object {
	return object{"cluster": object{"apiServer": object{"certSANs": names}}}
}

func (v1alpha1Form) labels(labels map[string]string) object {
	return object{"machine": object{"nodeLabels": labels}}
}

func (v1alpha1Form) marks(n NodeConfig) []object {
	machine, kubelet := object{}, kubeletMarks(n, "extraConfig")
	if labels := labelsWithoutGPUs(n); len(labels) > 0 {
		machine["nodeLabels"] = labels
	}

	if taints := managedTaints(n); len(taints) > 0 {
		machine["nodeTaints"] = taints
	}

	if len(kubelet) > 0 {
		machine["kubelet"] = kubelet
	}

	if len(machine) == 0 {
		return nil
	}

	return []object{{"machine": machine}}
}

func (v1alpha1Form) manifest(name, text string) object {
	return object{"cluster": object{"inlineManifests": []object{{"name": name, "contents": text}}}}
}

// documentForm are the documents in which contracts from 1.14 on have Kubernetes, discovery, installation and servers.
type documentForm struct{}

func document(kind string, fields object) object {
	fields["apiVersion"], fields["kind"] = "v1alpha1", kind

	return fields
}

// cluster leaves out what the contract's generator does from the same configuration: KubePrism, discovery itself, and
// the taint of control planes. It turns off the isolation of workloads; docs/upgrades.md says why.
func (documentForm) cluster(c ClusterConfig, n NodeConfig) []object {
	docs := []object{
		document("KubeNodeConfig", object{"nodeIP": object{"validSubnets": kubeletSubnets(c, n)}}),
		document("SecurityProfileConfig", object{"workloadIsolation": false}),
	}
	if c.Discovery != "" && c.Discovery != NoDiscovery {
		docs = append(docs, document("DiscoveryServiceConfig", object{"name": "default", "endpoint": c.Discovery}))
	}

	docs = append(docs, documentForm{}.names(n)...)

	if len(c.NTP) > 0 {
		docs = append(docs, timeSyncConfig(c))
	}

	if n.Role != RoleControlPlane {
		return docs
	}

	docs = append(docs,
		document("KubeFlannelCNIConfig", object{"$patch": "delete"}), document("KubeProxyConfig", object{"enabled": false}),
		object{"cluster": object{"etcd": object{"advertisedSubnets": nodeSubnets(c, n)}}},
	)
	if names := apiNames(c); len(names) > 0 {
		docs = append(docs, documentForm{}.certificateNames(names))
	}

	return docs
}

// NTSNeeds returns the release of Talos that NTS needs; empty = a version has it, or is no known one.
func NTSNeeds(version string) string {
	release, err := ReleaseOf(version)
	if err != nil {
		return ""
	}

	for _, added := range release.AddedLater(timeSyncConfig(ClusterConfig{NTS: true})) {
		return added.Release
	}

	return ""
}

func timeSyncConfig(c ClusterConfig) object {
	ntp := object{"servers": c.NTP}
	if c.NTS {
		ntp["useNTS"] = true
	}

	return document("TimeSyncConfig", object{"ntp": ntp})
}

// names returns how a node resolves names.
func (documentForm) names(n NodeConfig) (docs []object) {
	resolver := object{}

	if len(n.DNS) > 0 {
		servers := make([]object, 0, len(n.DNS))
		for _, server := range n.DNS {
			servers = append(servers, object{"address": server.String()})
		}

		resolver["nameservers"] = servers
	}

	if len(n.SearchDomains) > 0 {
		resolver["searchDomains"] = object{"domains": n.SearchDomains}
	}

	if len(resolver) > 0 {
		docs = append(docs, document("ResolverConfig", resolver))
	}

	for _, host := range n.StaticHosts {
		docs = append(docs, document("StaticHostConfig", object{"name": host.Address.String(), "hostnames": host.Names}))
	}

	return docs
}

func (documentForm) install(i Install) object {
	return document("UnattendedInstallConfig", object{
		"installer": object{"image": i.Image},
		"provisioning": object{
			"diskSelector": object{"match": fmt.Sprintf("disk.dev_path == %q", cmp.Or(i.Disk, DefaultInstallDisk))},
			"wipe":         i.Wipe,
		},
	})
}

func (documentForm) certificateNames(names []string) object {
	return document("KubeAPIServerConfig", object{"certExtraSANs": names})
}

func (documentForm) labels(labels map[string]string) object {
	return document("KubeNodeConfig", object{"labels": labels})
}

func (documentForm) marks(n NodeConfig) (docs []object) {
	node := object{}
	if labels := labelsWithoutGPUs(n); len(labels) > 0 {
		node["labels"] = labels
	}

	if taints := managedTaints(n); len(taints) > 0 {
		node["taints"] = taints
	}

	if len(node) > 0 {
		docs = append(docs, document("KubeNodeConfig", node))
	}

	if kubelet := kubeletMarks(n, "config"); len(kubelet) > 0 {
		docs = append(docs, document("KubeletConfig", kubelet))
	}

	return docs
}

func (documentForm) manifest(name, text string) object {
	return document("KubeInlineManifestConfig", object{"name": name, "manifest": text})
}

// apiNames are the names of the API server beside those that every configuration has.
func apiNames(c ClusterConfig) []string {
	if c.VIP.IsValid() {
		return append([]string{c.VIP.String()}, c.CertSANs...)
	}

	return c.CertSANs
}
