package machine

import (
	"talos-proxmox/lab/machine/etcd"
	"talos-proxmox/lab/machine/nodes"
)

// kubeletLabels are what the kubelet says of its machine, at registration and at every later start.
func (m *machine) kubeletLabels() map[string]string {
	return map[string]string{
		"kubernetes.io/hostname": m.hostname, "kubernetes.io/os": "linux", "kubernetes.io/arch": m.system.Arch,
		"beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": m.system.Arch,
	}
}

// applyNode makes labels, annotations and taints of the Node object those of the machine's configuration, as Talos
// does: all in one update, so that a refusal loses all of them, and again at every change of the two. The caller holds
// the lock.
func (m *machine) applyNode(e *etcd.Cluster) {
	current := e.Nodes[m.hostname]
	if current == nil || m.config == nil {
		return
	}

	next := *current
	next.Marks = m.wantedNode(current.Marks)

	if current.Same(next.Marks) {
		m.kubelet.refused = ""

		return
	}

	if !m.isControlPlane() { // where Talos is the cluster's administrator
		if refusal := nodes.Refusal(next.Name, current.Marks, next.Marks); refusal != "" {
			m.refuseNode(refusal)

			return
		}
	}

	m.kubelet.refused = ""

	e.Store(&next)
}

// refuseNode tells once why the API server does not take a change of the node, which Talos tries again and again; the
// caller holds the lock.
func (m *machine) refuseNode(message string) {
	if m.kubelet.refused != message {
		m.kubelet.refused = message
		m.logf("[talos] controller failed {\"controller\": \"k8s.NodeApplyController\", \"error\": \"%d error(s) occurred:\\n\\ttimeout\\n\\t%s\"}", 2, message)
	}
}

// wantedNode is a node as Talos wants it; the caller holds the lock.
func (m *machine) wantedNode(current nodes.Marks) nodes.Marks {
	return current.With(nodes.Wanted(m.config, m.extensions, m.cordoned))
}
