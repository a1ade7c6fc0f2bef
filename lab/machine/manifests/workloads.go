package manifests

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/constants"

	"talos-proxmox/lab/machine/pods"
)

// Workload is what Talos' own manifests run on the nodes.
type Workload struct {
	Name, Container, Image string

	labels map[string]string
	cni    bool // it brings the pods' network
}

// Proxy is kube-proxy where the configuration has it.
func Proxy(cfg config.Provider) (Workload, bool) {
	p := cfg.Cluster().Proxy()
	label := map[string]string{"k8s-app": "kube-proxy", "tier": "node"}

	return Workload{Name: "kube-proxy", Container: "kube-proxy", Image: p.Image(), labels: label}, p.Enabled()
}

// Flannel is the CNI that Talos brings where the configuration has it.
func Flannel(cfg config.Provider) (Workload, bool) {
	return Workload{
		Name:      "kube-flannel",
		Container: "kube-flannel",
		Image:     "ghcr.io/siderolabs/flannel:v0.27.4",
		labels:    map[string]string{"k8s-app": "flannel", "tier": "node"},
		cni:       true,
	}, cfg.Cluster().Network().CNI().Name() == constants.FlannelCNI
}

// CoreDNS is the cluster's DNS server where the configuration has it.
func CoreDNS(cfg config.Provider) (Workload, bool) {
	c := cfg.Cluster().CoreDNS()

	return Workload{
		Name: "coredns", Container: "coredns", Image: c.Image(), labels: map[string]string{"k8s-app": "kube-dns"},
	}, c.Enabled()
}

// coreDNSReplicas is what Talos' manifest asks for.
const coreDNSReplicas = 2

// Own are the workloads that Talos itself gives a cluster, for the kubelets of real nodes to run. They have names,
// labels, images and tolerations of Talos' manifests, and none of their settings, as nothing in the lab's pods would
// read them.
func Own(cfg config.Provider) []Manifest {
	var list []Manifest

	if w, enabled := Flannel(cfg); enabled {
		list = append(list, Manifest{ID: "05-flannel", Inline: w.daemonSet()})
	}

	if w, enabled := Proxy(cfg); enabled {
		list = append(list, Manifest{ID: "10-kube-proxy", Inline: w.daemonSet()})
	}

	if w, enabled := CoreDNS(cfg); enabled {
		list = append(list, Manifest{ID: "11-core-dns", Inline: w.deployment()})

		if ips, err := cfg.Cluster().Network().DNSServiceIPs(); err == nil && len(ips) > 0 {
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
      containers: [{name: %[3]s, image: %[4]q, volumeMounts: [%[5]s]}]
      volumes: [%[6]s]
`, w.Name, w.yamlLabels(), w.Container, w.Image, mount, volume)
}

func (w Workload) deployment() string {
	return w.serviceAccount() + fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s, namespace: kube-system, labels: %[2]s}
spec:
  replicas: %[5]d
  selector: {matchLabels: %[2]s}
  template:
    metadata: {labels: %[2]s}
    spec:
      priorityClassName: system-cluster-critical
      serviceAccountName: %[1]s
      tolerations: [{key: %[6]q, operator: Exists, effect: NoSchedule}]
      containers: [{name: %[3]s, image: %[4]q}]
`, w.Name, w.yamlLabels(), w.Container, w.Image, coreDNSReplicas, constants.LabelNodeRoleControlPlane)
}
