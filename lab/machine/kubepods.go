package machine

import (
	"talos-proxmox/lab/machine/controlplane"
	"talos-proxmox/lab/machine/etcd"
	"talos-proxmox/lab/machine/kube"
	"talos-proxmox/lab/machine/pods"
)

// staticPods are the containers of this control plane's static pods while its API server runs; the caller holds the
// lock.
func (m *machine) staticPods() []pods.Container {
	if !m.isControlPlane() || !m.apiUp {
		return nil
	}

	var list []pods.Container
	for _, name := range controlplane.StaticPods() {
		list = append(list, pods.Container{
			Namespace: pods.System, Pod: name + "-" + m.hostname, Name: name,
			Image: controlplane.StaticPodImage(m.config, name),
		})
	}

	return list
}

// nodePods implements kubernetes.
func (m modelKubernetes) nodePods(e *etcd.Cluster) []pods.Container {
	var list []pods.Container

	node := e.Nodes[m.hostname]

	for _, w := range m.enabled(m.proxy, m.flannel) {
		list = append(list, pods.Container{
			Namespace: pods.System, Pod: w.name + "-" + node.UID[:5], Name: w.container, Image: w.image,
		})
	}

	return append(list, kube.Containers(e, node)...)
}

// workload is what Talos' bootstrap manifests run on the nodes.
type workload struct {
	name, container, image string
	labels                 map[string]string
	cni                    bool // it brings the pods' network
}

func (m *machine) proxy() (workload, bool) {
	p := m.config.Cluster().Proxy()
	label := map[string]string{"k8s-app": "kube-proxy", "tier": "node"}

	return workload{name: "kube-proxy", container: "kube-proxy", image: p.Image(), labels: label}, p.Enabled()
}

func (m *machine) flannel() (workload, bool) {
	label := map[string]string{"k8s-app": "flannel", "tier": "node"}

	return workload{
		name:      "kube-flannel",
		container: "kube-flannel",
		image:     "ghcr.io/siderolabs/flannel:v0.27.4",
		labels:    label,
		cni:       true,
	}, m.config.Cluster().Network().CNI().Name() == "flannel"
}

func (m *machine) coreDNS() (workload, bool) {
	c := m.config.Cluster().CoreDNS()

	return workload{
		name: "coredns", container: "coredns", image: c.Image(), labels: map[string]string{"k8s-app": "kube-dns"},
	}, c.Enabled()
}

// coreDNSReplicas is what Talos' manifest asks for.
const coreDNSReplicas = 2

func (m *machine) enabled(candidates ...func() (workload, bool)) []workload {
	var found []workload

	for _, c := range candidates {
		if w, ok := c(); ok {
			found = append(found, w)
		}
	}

	return found
}
