package machine

import (
	"talos-proxmox/lab/machine/controlplane"
	"talos-proxmox/lab/machine/etcd"
	"talos-proxmox/lab/machine/kube"
)

// modelHost shows a control plane to the model's API server. It implements kube.Machine.
type modelHost struct{ m *machine }

var _ kube.Machine = modelHost{}

// Cluster implements kube.Machine.
func (h modelHost) Cluster() (*etcd.Cluster, func()) {
	h.m.ms.mu.Lock()

	if h.m.cluster == nil || h.m.etcd == nil {
		return &etcd.Cluster{}, h.m.ms.mu.Unlock
	}

	return h.m.etcd, h.m.ms.mu.Unlock
}

// Version implements kube.Machine.
func (h modelHost) Version() string {
	h.m.ms.mu.Lock()
	defer h.m.ms.mu.Unlock()

	if h.m.config == nil {
		return ""
	}

	return controlplane.Tag(h.m.config.K8sAPIServerConfig().Image())
}

// Healthy implements kube.Machine.
func (h modelHost) Healthy() bool {
	h.m.ms.mu.Lock()
	defer h.m.ms.mu.Unlock()

	return h.m.apiReady()
}

// Deleted implements kube.Machine.
func (h modelHost) Deleted(_ *etcd.Cluster, n *etcd.Node) {
	// A kubelet does not register its node again before it restarts; until then it posts into the void.
	if m := h.m.ms.ofNode(n); m != nil {
		m.kubelet.posting = false
		m.changed.fire()
	}

	h.m.cluster.changed.fire()
}

// Patched implements kube.Machine.
func (h modelHost) Patched(c *etcd.Cluster, n *etcd.Node) {
	if m := h.m.ms.ofNode(n); m != nil && m.cluster == h.m.cluster {
		m.applyNode(c)
	}

	h.m.cluster.changed.fire()
}

// ofNode is the machine of a node; nil where it is off. The caller holds the lock.
func (ms *Machines) ofNode(n *etcd.Node) *machine {
	if m := ms.running[n.VMID]; m != nil && m.hostname == n.Name {
		return m
	}

	return nil
}
