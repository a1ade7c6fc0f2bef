package machine

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/constants"

	"talos-proxmox/lab/machine/kubelet"
)

// ownManifests implements kubernetes: the workloads that Talos itself gives a cluster, for the kubelets of real nodes
// to run. They have names, labels, images and tolerations of Talos' manifests, and none of their settings, as nothing
// in the lab's pods would read them.
func (k *realKubernetes) ownManifests() []manifest {
	var list []manifest

	m := k.m

	if w, enabled := m.flannel(); enabled {
		list = append(list, manifest{id: "05-flannel", inline: w.daemonSet()})
	}

	if w, enabled := m.proxy(); enabled {
		list = append(list, manifest{id: "10-kube-proxy", inline: w.daemonSet()})
	}

	if w, enabled := m.coreDNS(); enabled {
		list = append(list, manifest{id: "11-core-dns", inline: w.deployment()})

		if ips, err := m.config.Cluster().Network().DNSServiceIPs(); err == nil && len(ips) > 0 {
			list = append(list, manifest{id: "11-core-dns-svc", inline: fmt.Sprintf(`
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

// ownManifests implements kubernetes: the model shows these workloads without manifests.
func (modelKubernetes) ownManifests() []manifest { return nil }

func (w workload) yamlLabels() string {
	pairs := make([]string, 0, len(w.labels))
	for _, key := range slices.Sorted(maps.Keys(w.labels)) {
		pairs = append(pairs, fmt.Sprintf("%s: %q", key, w.labels[key]))
	}

	return "{" + strings.Join(pairs, ", ") + "}"
}

func (w workload) serviceAccount() string {
	return fmt.Sprintf("apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: %s, namespace: kube-system}\n---\n", w.name)
}

func (w workload) daemonSet() string {
	mount, volume := "", ""
	if w.cni {
		mount = fmt.Sprintf("{name: cni, mountPath: %s}", kubelet.CNIConfigurations)
		volume = fmt.Sprintf("{name: cni, hostPath: {path: %s}}", kubelet.CNIConfigurations)
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
`, w.name, w.yamlLabels(), w.container, w.image, mount, volume)
}

func (w workload) deployment() string {
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
`, w.name, w.yamlLabels(), w.container, w.image, coreDNSReplicas, constants.LabelNodeRoleControlPlane)
}
