package machine

import (
	"talos-proxmox/lab/machine/etcd"
	"talos-proxmox/lab/machine/nodes"
)

// kubeletLabels returns the labels that the kubelet sets at registration and at every start.
func (m *machine) kubeletLabels() map[string]string {
	return map[string]string{
		"kubernetes.io/hostname": m.hostname, "kubernetes.io/os": "linux", "kubernetes.io/arch": m.system.Arch,
		"beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": m.system.Arch,
	}
}

// applyNode applies the labels, annotations and taints of the configuration to the Node object as Talos does: in one
// update, so that a refusal affects all of them, and again whenever the configuration or the node changes. The caller
// holds the lock.
func (m *machine) applyNode(e *etcd.Cluster) {
	current := e.Nodes[m.hostname]
	if current == nil || m.config == nil {
		return
	}

	next := &etcd.Node{Node: *current.DeepCopy(), VMID: current.VMID}
	changed, refusal := m.desiredNode().Apply(&next.Node), ""

	if changed && !m.isControlPlane() { // on control planes Talos is an administrator
		refusal = nodes.Refusal(&current.Node, &next.Node)
	}

	m.reportNodeRefusal(refusal)

	if changed && refusal == "" {
		e.Store(next)
	}
}

// reportNodeRefusal records why the API server refuses a change of the node, which Talos retries, and logs it once;
// empty if it accepts. The caller holds the lock.
func (m *machine) reportNodeRefusal(message string) {
	if message != "" && m.kubelet.refusal != message {
		m.logfLocked("[talos] controller failed {\"controller\": \"k8s.NodeApplyController\", \"error\": \"%d error(s) occurred:\\n\\ttimeout\\n\\t%s\"}", 2, message)
	}

	m.kubelet.refusal = message
}

// desiredNode returns the state that Talos wants for the machine's node; the caller holds the lock.
func (m *machine) desiredNode() nodes.Desired {
	return nodes.NewDesired(m.config, m.extensions, m.cordoned)
}
