package machine

import (
	"context"

	"talos-proxmox/lab/machine/controlplane"
	"talos-proxmox/lab/machine/etcd"
	"talos-proxmox/lab/machine/kube"
	"talos-proxmox/lab/machine/manifests"
	"talos-proxmox/lab/machine/pods"
)

// modelKubernetes runs the model of etcd and Kubernetes.
type modelKubernetes struct{ *machine }

var (
	_ kubernetes   = modelKubernetes{}
	_ kube.Machine = modelKubernetes{}
)

// drain implements kubernetes: the model's pods belong to DaemonSets, which a drain leaves in place.
func (modelKubernetes) drain(context.Context) error { return nil }

// nodePods implements kubernetes: no client reads the containers of the model's pods.
func (modelKubernetes) nodePods() []pods.Container { return nil }

// bootstrapManifests implements kubernetes.
func (modelKubernetes) bootstrapManifests() []manifests.Manifest { return nil }

// createObject implements kubernetes: the model stores the objects that make nodes offer GPUs, and ignores others.
func (m modelKubernetes) createObject(_ context.Context, content map[string]any) error {
	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	if m.config == nil || !m.apiReady() {
		return errNoEtcd
	}

	if label := m.etcd.CreateIfMissing(content); label != "" {
		m.logfLocked("[talos] created %s", label)
	}

	return nil
}

// Cluster implements kube.Machine.
func (m modelKubernetes) Cluster() (*etcd.Cluster, func()) {
	m.ms.mu.Lock()

	if m.cluster == nil || m.etcd == nil {
		return &etcd.Cluster{}, m.ms.mu.Unlock
	}

	return m.etcd, m.ms.mu.Unlock
}

// Version implements kube.Machine.
func (m modelKubernetes) Version() string {
	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	if m.config == nil {
		return ""
	}

	return controlplane.Tag(m.config.K8sAPIServerConfig().Image())
}

// Healthy implements kube.Machine.
func (m modelKubernetes) Healthy() bool {
	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	return m.apiReady()
}

// NodeDeleted implements kube.Machine.
func (m modelKubernetes) NodeDeleted(n *etcd.Node) {
	// A kubelet registers its node again only when it restarts; until then its status updates are lost.
	if o := m.ms.machineOf(n); o != nil {
		o.kubelet.posting = false
		o.changed.fire()
	}

	m.cluster.changed.fire()
}

// NodePatched implements kube.Machine.
func (m modelKubernetes) NodePatched(c *etcd.Cluster, n *etcd.Node) {
	if o := m.ms.machineOf(n); o != nil && o.cluster == m.cluster {
		o.applyNode(c)
	}

	m.cluster.changed.fire()
}

// machineOf returns the machine of a node; nil if it is off. The caller holds the lock.
func (ms *Machines) machineOf(n *etcd.Node) *machine {
	if m := ms.running[n.VMID]; m != nil && m.hostname == n.Name {
		return m
	}

	return nil
}
