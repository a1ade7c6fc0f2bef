package talos

import (
	"slices"
	"strings"
)

// sameBelow says that a document has a field's inner fields under their names; otherForm that it has the value in
// another form.
const (
	sameBelow = "."
	otherForm = ""
)

// replacedFields are fields of the v1alpha1 document, and the documents and fields that have them since contract 1.14
// (pkg/machinery/config/types: V1Alpha1ConflictValidate); the first that a field is below counts.
var replacedFields = []struct{ path, document, field string }{
	{"machine.install", "UnattendedInstallConfig", otherForm},
	{"machine.time.servers", "TimeSyncConfig", "ntp.servers"},
	{"machine.time.bootTimeout", "TimeSyncConfig", "bootTimeout"},
	{"machine.time", "TimeSyncConfig", otherForm},
	{"machine.network.nameservers", "ResolverConfig", otherForm},
	{"machine.network.searchDomains", "ResolverConfig", "searchDomains.domains"},
	{"machine.network.disableSearchDomain", "ResolverConfig", "searchDomains.disableDefault"},
	{"machine.features.hostDNS", "ResolverConfig", "hostDNS"},
	{"machine.features.kubePrism.port", "KubePrismConfig", "port"},
	{"machine.features.kubePrism", "KubePrismConfig", otherForm},
	{"machine.features.kubernetesTalosAPIAccess", "KubeTalosAPIAccessConfig", sameBelow}, // it is enabled by being there
	{"machine.nodeLabels", "KubeNodeConfig", "labels"},
	{"machine.nodeAnnotations", "KubeNodeConfig", "annotations"},
	{"machine.nodeTaints", "KubeNodeConfig", "taints"},
	{"machine.kubelet.nodeIP", "KubeNodeConfig", "nodeIP"},
	{"machine.kubelet.registerWithFQDN", "KubeNodeConfig", "registerWithFQDN"},
	{"machine.kubelet.skipNodeRegistration", "KubeNodeConfig", "skipNodeRegistration"},
	{"machine.kubelet.extraConfig", "KubeletConfig", "config"},
	{"machine.kubelet", "KubeletConfig", sameBelow},
	{"cluster.apiServer.admissionControl", "KubeAdmissionControlConfig", otherForm},
	{"cluster.apiServer.auditPolicy", "KubeAuditPolicyConfig", "configuration"},
	{"cluster.apiServer.authorizationConfig", "KubeAuthorizerConfig", otherForm},
	{"cluster.apiServer.certSANs", "KubeAPIServerConfig", "certExtraSANs"},
	{"cluster.apiServer", "KubeAPIServerConfig", sameBelow},
	{"cluster.controlPlane.localAPIServerPort", "KubeAPIServerConfig", "apiPort"},
	{"cluster.controllerManager", "KubeControllerManagerConfig", sameBelow},
	{"cluster.scheduler", "KubeSchedulerConfig", sameBelow},
	{"cluster.proxy.disabled", "KubeProxyConfig", otherForm},
	{"cluster.proxy", "KubeProxyConfig", sameBelow},
	{"cluster.coreDNS", "KubeCoreDNSConfig", otherForm},
	{"cluster.network.cni", "KubeFlannelCNIConfig", otherForm},
	{"cluster.network", "KubeNetworkConfig", sameBelow},
	{"cluster.discovery", "DiscoveryServiceConfig", otherForm},
	{"cluster.allowSchedulingOnControlPlanes", "KubeNodeConfig", otherForm},
}

// inOtherForm says what to do with the parts of a patch that have the other form than a contract: write machine.kubelet
// as KubeletConfig, or KubeletConfig as machine.kubelet, and remove what follows from keys of the stack file. Empty =
// nothing has.
func (r Release) inOtherForm(patch string) string {
	documents, err := readDocuments(patch)
	if err != nil {
		return "" // Talos' own loader reports it
	}

	var write, remove []string

	if r.KubernetesDocuments {
		for _, field := range differingLeaves("", "", documents[""], nil) {
			i := replacement(field)
			if i < 0 {
				continue
			}

			path := replacedFields[i].path
			if keys := plannedValue(path); keys != "" {
				remove = append(remove, path+", which follows from "+keys+" in the stack file")
			} else {
				write = append(write, path+" as "+replacedFields[i].document)
			}
		}
	} else {
		for _, replaced := range replacedFields {
			document := documents[replaced.document]
			whole := replaced.field == sameBelow || replaced.field == otherForm

			if document != nil && (whole || hasPath(document, strings.Split(replaced.field, "."))) {
				write = append(write, replaced.document+" as "+replaced.path)
			}
		}
	}

	slices.Sort(write)
	slices.Sort(remove)

	var advice []string
	if len(write) > 0 {
		advice = append(advice, "write "+strings.Join(slices.Compact(write), ", ")+", which the cluster's contract has")
	}

	if len(remove) > 0 {
		advice = append(advice, "remove "+strings.Join(slices.Compact(remove), ", "))
	}

	return strings.Join(advice, "; ")
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
// there: KubeletConfig and extraArgs.v for machine.kubelet.extraArgs.v. Empty = it has stayed, or has another form.
func InDocument(field string) (document, path string) {
	i := replacement(field)
	if i < 0 || replacedFields[i].field == otherForm {
		return "", ""
	}

	rest := strings.TrimPrefix(field, replacedFields[i].path)
	if replacedFields[i].field == sameBelow {
		rest = strings.TrimPrefix(rest, ".")
	} else {
		rest = replacedFields[i].field + rest
	}

	return replacedFields[i].document, rest
}
