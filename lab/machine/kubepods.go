package machine

import (
	"github.com/siderolabs/talos/pkg/machinery/config"

	"talos-proxmox/internal/talos"
	"talos-proxmox/lab/machine/controlplane"
	"talos-proxmox/lab/machine/etcd"
	"talos-proxmox/lab/machine/kube"
	"talos-proxmox/lab/machine/manifests"
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

	for _, own := range []func(config.Provider, talos.Release) (manifests.Workload, bool){
		manifests.Proxy, manifests.Flannel,
	} {
		if w, enabled := own(m.config, m.release); enabled {
			list = append(list, pods.Container{
				Namespace: pods.System, Pod: w.Name + "-" + node.UID[:5], Name: w.Container, Image: w.Image,
			})
		}
	}

	return append(list, kube.Containers(e, node)...)
}
