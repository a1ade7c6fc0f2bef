package talos

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/constants"
)

// form writes the settings whose place in a configuration depends on its contract, as strategic-merge patches of one
// document each. A machine refuses a configuration with both places of a setting.
type form interface {
	// cluster returns what all nodes of a role share.
	cluster(c ClusterConfig, role string) []object
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

func (f v1alpha1Form) cluster(c ClusterConfig, role string) []object {
	docs := []object{
		{"machine": object{
			"features": object{"kubePrism": object{"enabled": true, "port": constants.DefaultKubePrismPort}},
			"kubelet":  object{"nodeIP": object{"validSubnets": nodeSubnets(c)}},
		}},
		{"cluster": object{"network": f.network(c), "discovery": f.discovery(c)}},
	}

	servers := object{}
	if len(c.DNS) > 0 {
		servers["network"] = object{"nameservers": toStrings(c.DNS)}
	}

	if len(c.NTP) > 0 {
		servers["time"] = object{"servers": c.NTP}
	}

	if len(servers) > 0 {
		docs = append(docs, object{"machine": servers})
	}

	if role != RoleControlPlane {
		return docs
	}

	cluster := object{
		"proxy":                          object{"disabled": true},
		"etcd":                           object{"advertisedSubnets": nodeSubnets(c)},
		"allowSchedulingOnControlPlanes": c.AllowSchedulingOnControlPlanes,
	}
	if names := apiNames(c); len(names) > 0 {
		cluster["apiServer"] = object{"certSANs": names}
	}

	return append(docs, object{"cluster": cluster})
}

// network disables Talos' own CNI. Its subnets replace the generated ones.
func (v1alpha1Form) network(c ClusterConfig) object {
	network := object{"cni": object{"name": "none"}}

	for key, subnet := range map[string]netip.Prefix{"podSubnets": c.PodCIDR, "serviceSubnets": c.ServiceCIDR} {
		if subnet.IsValid() {
			network[key] = []string{subnet.String()}
		}
	}

	return network
}

func (v1alpha1Form) discovery(c ClusterConfig) object {
	service := object{"disabled": c.NoDiscoveryService}
	if c.DiscoveryEndpoint != "" && !c.NoDiscoveryService {
		service["endpoint"] = c.DiscoveryEndpoint
	}

	return object{
		"enabled":    !c.NoDiscoveryService,
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

// cluster leaves out what the contract's generator does from the same configuration: networks, KubePrism, discovery
// itself, and the taint of control planes. It turns off what Talos 1.14 newly forbids pods; docs/upgrades.md says why.
func (documentForm) cluster(c ClusterConfig, role string) []object {
	docs := []object{
		document("KubeNodeConfig", object{"nodeIP": object{"validSubnets": nodeSubnets(c)}}),
		document("SecurityProfileConfig", object{"workloadIsolation": false}),
		document("VolumeConfig", object{"name": constants.EphemeralPartitionLabel, "mount": object{"secure": false}}),
	}
	if c.DiscoveryEndpoint != "" && !c.NoDiscoveryService {
		docs = append(docs, document("DiscoveryServiceConfig", object{"name": "default", "endpoint": c.DiscoveryEndpoint}))
	}

	if len(c.DNS) > 0 {
		servers := make([]object, 0, len(c.DNS))
		for _, server := range c.DNS {
			servers = append(servers, object{"address": server.String()})
		}

		docs = append(docs, document("ResolverConfig", object{"nameservers": servers}))
	}

	if len(c.NTP) > 0 {
		docs = append(docs, document("TimeSyncConfig", object{"ntp": object{"servers": c.NTP}}))
	}

	if role != RoleControlPlane {
		return docs
	}

	docs = append(docs,
		document("KubeFlannelCNIConfig", object{"$patch": "delete"}), document("KubeProxyConfig", object{"enabled": false}),
		object{"cluster": object{"etcd": object{"advertisedSubnets": nodeSubnets(c)}}},
	)
	if names := apiNames(c); len(names) > 0 {
		docs = append(docs, documentForm{}.certificateNames(names))
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

// replacedFields are fields of the v1alpha1 document and the documents that have them since contract 1.14
// (pkg/machinery/config/types: V1Alpha1ConflictValidate); the first that a field is below counts.
var replacedFields = []struct{ path, document string }{
	{"machine.install", "UnattendedInstallConfig"},
	{"machine.time", "TimeSyncConfig"},
	{"machine.network.nameservers", "ResolverConfig"},
	{"machine.network.searchDomains", "ResolverConfig"},
	{"machine.network.disableSearchDomain", "ResolverConfig"},
	{"machine.features.hostDNS", "ResolverConfig"},
	{"machine.features.kubePrism", "KubePrismConfig"},
	{"machine.features.kubernetesTalosAPIAccess", "KubeTalosAPIAccessConfig"},
	{"machine.nodeLabels", "KubeNodeConfig"},
	{"machine.nodeAnnotations", "KubeNodeConfig"},
	{"machine.nodeTaints", "KubeNodeConfig"},
	{"machine.kubelet.nodeIP", "KubeNodeConfig"},
	{"machine.kubelet.registerWithFQDN", "KubeNodeConfig"},
	{"machine.kubelet.skipNodeRegistration", "KubeNodeConfig"},
	{"machine.kubelet", "KubeletConfig"},
	{"cluster.apiServer.admissionControl", "KubeAdmissionControlConfig"},
	{"cluster.apiServer.auditPolicy", "KubeAuditPolicyConfig"},
	{"cluster.apiServer.authorizationConfig", "KubeAuthorizerConfig"},
	{"cluster.apiServer", "KubeAPIServerConfig"},
	{"cluster.controlPlane.localAPIServerPort", "KubeAPIServerConfig"},
	{"cluster.controllerManager", "KubeControllerManagerConfig"},
	{"cluster.scheduler", "KubeSchedulerConfig"},
	{"cluster.proxy", "KubeProxyConfig"},
	{"cluster.coreDNS", "KubeCoreDNSConfig"},
	{"cluster.network.cni", "KubeFlannelCNIConfig"},
	{"cluster.network", "KubeNetworkConfig"},
	{"cluster.discovery", "DiscoveryServiceConfig"},
	{"cluster.allowSchedulingOnControlPlanes", "KubeNodeConfig"},
}

// writtenInstead returns the documents to write instead of fields in a patch: machine.kubelet as KubeletConfig.
func writtenInstead(patch string) string {
	documents, err := readDocuments(patch)
	if err != nil {
		return "" // Talos' own loader reports it
	}

	var instead []string

	for _, field := range differingLeaves("", "", documents[""], nil) {
		if i := replacement(field); i >= 0 {
			instead = append(instead, replacedFields[i].path+" as "+replacedFields[i].document)
		}
	}

	return strings.Join(slices.Compact(instead), ", ")
}

// replacement returns the index in replacedFields of what a field is below; -1 = nothing.
func replacement(field string) int {
	for i, replaced := range replacedFields {
		if field == replaced.path || strings.HasPrefix(field, replaced.path+".") {
			return i
		}
	}

	return -1
}

// InDocument returns the document that has a field of the v1alpha1 document since contract 1.14, and the field's path
// there: KubeletConfig and extraArgs.v for machine.kubelet.extraArgs.v. Empty = it has stayed.
func InDocument(field string) (document, path string) {
	i := replacement(field)
	if i < 0 {
		return "", ""
	}

	return replacedFields[i].document, strings.TrimPrefix(strings.TrimPrefix(field, replacedFields[i].path), ".")
}
