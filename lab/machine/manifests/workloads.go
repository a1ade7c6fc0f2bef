package manifests

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"

	"talos-proxmox/internal/talos"
	"talos-proxmox/lab/machine/configuration"
	"talos-proxmox/lab/machine/pods"
)

// Workload is a workload of Talos' bootstrap manifests.
type Workload struct {
	Name, Image string

	labels map[string]string
	cni    bool // installs a CNI
}

// kubeProxy returns kube-proxy, and whether the configuration enables it.
func kubeProxy(cfg config.Provider) (Workload, bool) {
	p := cfg.K8sProxyConfig()
	label := map[string]string{"k8s-app": "kube-proxy", "tier": "node"}

	return Workload{Name: "kube-proxy", Image: p.Image(), labels: label}, p.Enabled()
}

// flannelWorkload returns Talos' CNI, and whether the configuration enables it.
func flannelWorkload(cfg config.Provider, release talos.Release) (Workload, bool) {
	return Workload{
		Name:   "kube-flannel",
		Image:  "ghcr.io/siderolabs/flannel:" + release.Flannel,
		labels: map[string]string{"k8s-app": "flannel", "tier": "node"},
		cni:    true,
	}, usesFlannel(cfg)
}

// usesFlannel reports whether Talos installs its CNI, which is also the default of a configuration without a network.
func usesFlannel(cfg config.Provider) bool {
	return cfg.K8sFlannelCNIConfig() != nil || cfg.K8sNetworkConfig() == nil
}

// BringsCNI reports whether the configuration installs a CNI: Talos' own or a custom one.
func BringsCNI(cfg config.Provider) bool {
	cluster, ok := cfg.Cluster().(*v1alpha1.ClusterConfig)

	return usesFlannel(cfg) || ok && cluster.CNI().Name() == constants.CustomCNI
}

// CoreDNS returns the cluster's DNS server, and whether the configuration enables it.
func CoreDNS(cfg config.Provider, release talos.Release) (Workload, bool) {
	return Workload{
		Name: "coredns", Image: configuration.CoreDNSImage(cfg, release),
		labels: map[string]string{"k8s-app": "kube-dns"},
	}, cfg.K8sCoreDNSConfig().Enabled()
}

// coreDNSReplicas is the number of replicas in Talos' manifest.
const coreDNSReplicas = 2

// Bootstrap returns Talos' own manifests. They have the names, labels, images and tolerations of Talos' manifests, but
// not their settings, which nothing in the lab's pods would read.
func Bootstrap(cfg config.Provider, release talos.Release) []Manifest {
	var list []Manifest

	if w, enabled := flannelWorkload(cfg, release); enabled {
		list = append(list, Manifest{ID: "05-flannel", Inline: w.daemonSet()})
	}

	if w, enabled := kubeProxy(cfg); enabled {
		list = append(list, Manifest{ID: "10-kube-proxy", Inline: w.daemonSet()})
	}

	if w, enabled := CoreDNS(cfg, release); enabled {
		list = append(list, Manifest{ID: "11-core-dns", Inline: w.deployment()})

		if ips := k8s.DNSServiceAddrs(configuration.Network(cfg).ServiceCIDRs()); len(ips) > 0 {
			list = append(list, Manifest{ID: "11-core-dns-svc", Inline: fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: kube-dns, namespace: kube-system, labels: {k8s-app: kube-dns}}
spec:
  clusterIP: %q
  selector: {k8s-app: kube-dns}
  ports: [{name: dns, port: 53, protocol: UDP}, {name: dns-tcp, port: 53, protocol: TCP}]
`, ips[0])})
		}
	}

	return list
}

// BootstrapConfig returns the settings of Talos' own manifests (k8s.ControlPlaneBootstrapManifestsController in
// internal/app/machined/pkg/controllers/k8s/control_plane.go), from which clients learn whether the cluster has a CNI.
func BootstrapConfig(cfg config.Provider, release talos.Release) *k8s.BootstrapManifestsConfig {
	r, network := k8s.NewBootstrapManifestsConfig(), configuration.Network(cfg)
	spec := r.TypedSpec()

	spec.Server = configuration.Endpoint(cfg).String()
	if prism := cfg.K8sKubePrismConfig(); prism != nil {
		spec.Server = fmt.Sprintf("https://127.0.0.1:%d", prism.Port())
	}

	spec.ClusterDomain, spec.PodCIDRs = network.DNSDomain(), configuration.Strings(network.PodCIDRs())

	for _, address := range k8s.DNSServiceAddrs(network.ServiceCIDRs()) {
		if address.Is4() {
			spec.DNSServiceIP = address.String()
		} else {
			spec.DNSServiceIPv6 = address.String()
		}
	}

	spec.CNIName = constants.NoneCNI

	if w, enabled := flannelWorkload(cfg, release); enabled {
		spec.FlannelEnabled, spec.FlannelImage, spec.CNIName = true, w.Image, constants.FlannelCNI
	}

	if w, enabled := kubeProxy(cfg); enabled {
		spec.ProxyEnabled, spec.ProxyImage = true, w.Image
	}

	if w, enabled := CoreDNS(cfg, release); enabled {
		spec.CoreDNSEnabled, spec.CoreDNSImage = true, w.Image
	}

	return r
}

func (w Workload) yamlLabels() string {
	pairs := make([]string, 0, len(w.labels))
	for _, key := range slices.Sorted(maps.Keys(w.labels)) {
		pairs = append(pairs, fmt.Sprintf("%s: %q", key, w.labels[key]))
	}

	return "{" + strings.Join(pairs, ", ") + "}"
}

func (w Workload) serviceAccount() string {
	return fmt.Sprintf("apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: %s, namespace: kube-system}\n---\n", w.Name)
}

func (w Workload) daemonSet() string {
	mount, volume := "", ""
	if w.cni {
		mount = fmt.Sprintf("{name: cni, mountPath: %s}", pods.CNIConfigurations)
		volume = fmt.Sprintf("{name: cni, hostPath: {path: %s}}", pods.CNIConfigurations)
	}

	return w.serviceAccount() + fmt.Sprintf(`
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: %[1]s, namespace: kube-system, labels: %[2]s}
spec:
  selector: {matchLabels: %[2]s}
  template:
    metadata: {labels: %[2]s}
    spec:
      hostNetwork: true
      priorityClassName: system-node-critical
      serviceAccountName: %[1]s
      tolerations: [{operator: Exists, effect: NoSchedule}, {operator: Exists, effect: NoExecute}]
      containers: [{name: %[1]s, image: %[3]q, volumeMounts: [%[4]s]}]
      volumes: [%[5]s]
`, w.Name, w.yamlLabels(), w.Image, mount, volume)
}

func (w Workload) deployment() string {
	return w.serviceAccount() + fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s, namespace: kube-system, labels: %[2]s}
spec:
  replicas: %[4]d
  selector: {matchLabels: %[2]s}
  template:
    metadata: {labels: %[2]s}
    spec:
      priorityClassName: system-cluster-critical
      serviceAccountName: %[1]s
      tolerations: [{key: %[5]q, operator: Exists, effect: NoSchedule}]
      containers: [{name: %[1]s, image: %[3]q}]
`, w.Name, w.yamlLabels(), w.Image, coreDNSReplicas, constants.LabelNodeRoleControlPlane)
}
