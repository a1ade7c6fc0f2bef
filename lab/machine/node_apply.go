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

	next := &etcd.Node{Node: *current.DeepCopy(), VMID: current.VMID}
	changed, refusal := m.desiredNode().Apply(&next.Node), ""

	if changed && !m.isControlPlane() { // where Talos is the cluster's administrator
		refusal = nodes.Refusal(&current.Node, &next.Node)
	}

	m.reportNodeRefusal(refusal)

	if changed && refusal == "" {
		e.Store(next)
	}
}

// reportNodeRefusal notes why the API server does not take a change of the node, which Talos tries again and again, and tells
// it once; empty where it does. The caller holds the lock.
func (m *machine) reportNodeRefusal(message string) {
	if message != "" && m.kubelet.refusal != message {
		m.logfLocked("[talos] controller failed {\"controller\": \"k8s.NodeApplyController\", \"error\": \"%d error(s) occurred:\\n\\ttimeout\\n\\t%s\"}", 2, message)
	}

	m.kubelet.refusal = message
}

// desiredNode is what Talos wants of the machine's node; the caller holds the lock.
func (m *machine) desiredNode() nodes.Desired {
	return nodes.NewDesired(m.config, m.extensions, m.cordoned)
}
