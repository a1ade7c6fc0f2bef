package machine

import (
	"net/netip"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"talos-proxmox/lab/machine/nodes"
)

// sawNode keeps what is known of a node as the API server has it.
func (k *realKubernetes) sawNode(n *corev1.Node, deleted bool) {
	m := k.m

	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	if m.etcd == nil || m.cluster == nil {
		return
	}

	known, node := m.etcd.nodes[n.Name], observed(n)
	if known != nil {
		node.VMID, node.CNI, node.MachineID = known.VMID, known.CNI, known.MachineID
	}

	of := m.cluster.named(n.Name)
	if of != nil {
		node.VMID = of.hw.VMID
	}

	switch {
	case deleted && known != nil && known.UID == node.UID:
		delete(m.etcd.nodes, n.Name)

		// A kubelet does not register its node again before it restarts; until then it posts into the void.
		if of != nil {
			of.kubelet.posting = false
		}
	case deleted || known != nil && known.UID == node.UID && known.Revision >= node.Revision:
		return // another control plane has seen it already
	default:
		m.etcd.nodes[n.Name] = node
	}

	m.cluster.changed.fire()

	if of != nil && of.config != nil {
		of.settle()
		of.changed.fire()
	}
}

// named is the member of a name; nil where none runs.
func (c *cluster) named(hostname string) *machine {
	for _, m := range c.members {
		if m.hostname == hostname {
			return m
		}
	}

	return nil
}

// observed is a Node object as the machines know it.
func observed(n *corev1.Node) *kubeNode {
	revision, _ := strconv.ParseUint(n.ResourceVersion, 10, 64) // every revision of etcd is a number

	node := &kubeNode{
		Name: n.Name, UID: string(n.UID), Revision: revision, Created: n.CreationTimestamp.Time,
		Marks: nodes.Of(n), podNetwork: n.Spec.PodCIDR,
		Kubelet: n.Status.NodeInfo.KubeletVersion, Arch: n.Status.NodeInfo.Architecture,
		ready: &corev1.NodeCondition{Status: corev1.ConditionUnknown},
	}

	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			node.Address, _ = netip.ParseAddr(a.Address) // a node without a usable address has none
		}
	}

	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			node.ready = &c
		}
	}

	return node
}
