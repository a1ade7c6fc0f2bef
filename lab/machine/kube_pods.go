package machine

import (
	"talos-proxmox/lab/machine/controlplane"
	"talos-proxmox/lab/machine/etcd"
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

// nodePods implements kubernetes: nobody asks for containers of the model's pods.
func (modelKubernetes) nodePods(*etcd.Cluster) []pods.Container { return nil }
