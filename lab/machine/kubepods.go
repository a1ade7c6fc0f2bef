package machine

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"talos-proxmox/lab/machine/controlplane"
	"talos-proxmox/lab/machine/pods"
)

// nodeContainer is a container of a pod that runs on a machine, as its container runtime tells it.
type nodeContainer struct{ namespace, pod, name, image string }

// staticPods are the containers of this control plane's static pods while its API server runs; the caller holds the
// lock.
func (m *machine) staticPods() []nodeContainer {
	if !m.isControlPlane() || !m.apiUp {
		return nil
	}

	var list []nodeContainer
	for _, name := range controlplane.StaticPods() {
		list = append(list, nodeContainer{
			kubeSystem, name + "-" + m.hostname, name, controlplane.StaticPodImage(m.config, name),
		})
	}

	return list
}

// staticPodStatus is what the kubelet says of a static pod, as JSON; the caller holds the lock.
func (m *machine) staticPodStatus(c nodeContainer) map[string]any {
	ready := m.apiReady()
	started := metav1.NewTime(m.bootedAt).Rfc3339Copy()

	var shown map[string]any

	_ = recode(corev1.PodStatus{
		Phase: corev1.PodRunning, HostIP: m.net.Node.String(), PodIP: m.net.Node.String(), StartTime: &started,
		Conditions: []corev1.PodCondition{
			{Type: corev1.PodReady, Status: pods.ConditionOf(ready), LastTransitionTime: started},
			{Type: corev1.ContainersReady, Status: pods.ConditionOf(ready), LastTransitionTime: started},
		},
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: c.name, Image: c.image, Ready: ready,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: started}},
		}},
	}, &shown) // it always encodes

	return shown
}

// nodePods implements kubernetes.
func (m modelKubernetes) nodePods(e *etcd) []nodeContainer {
	var list []nodeContainer

	node := e.nodes[m.hostname]

	for _, w := range m.enabled(m.proxy, m.flannel) {
		list = append(list, nodeContainer{kubeSystem, w.name + "-" + node.UID[:5], w.container, w.image})
	}

	for _, p := range e.daemonPods(node) {
		for _, c := range p.Spec.Containers {
			if p.state.Running {
				list = append(list, nodeContainer{p.Namespace, p.Name, c.Name, c.Image})
			}
		}
	}

	return list
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

// schedulable says whether a ready node takes ordinary pods; CoreDNS also tolerates control planes.
func (e *etcd) schedulable() bool {
	for _, n := range e.nodes {
		if status, _, _ := e.nodeState(n); status == "True" && !n.Unschedulable {
			return true
		}
	}

	return false
}
