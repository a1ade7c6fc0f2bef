package etcd

import (
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"talos-proxmox/lab/machine/nodes"
	"talos-proxmox/lab/machine/pods"
)

// Node is a Node object as the API server stores it. Its Ready condition is the kubelet's; in a real cluster
// controllers change it as well.
type Node struct {
	corev1.Node

	// VMID is the machine's; 0 if no machine with the node's name has run.
	VMID int `json:"vmid"`
}

// Store stores a Node.
func (c *Cluster) Store(n *Node) {
	c.commit(false)
	n.ResourceVersion = strconv.FormatUint(c.Revision, 10)
	c.Nodes[n.Name] = n
}

// Delete removes a Node at once.
func (c *Cluster) Delete(name string) {
	delete(c.Nodes, name)
	delete(c.silent, name)
	c.commit(true)
}

// SortedNodes returns the nodes sorted by name.
func (c *Cluster) SortedNodes() []*Node {
	list := make([]*Node, 0, len(c.Nodes))
	for _, name := range slices.Sorted(maps.Keys(c.Nodes)) {
		list = append(list, c.Nodes[name])
	}

	return list
}

// IsPosting reports whether the kubelet of a node posts its status to the cluster.
func (c *Cluster) IsPosting(n *Node) bool { return c.machines.IsPosting(c, n) }

// GPUs returns the GPUs of a posting node.
func (c *Cluster) GPUs(n *Node) pods.GPUs { return c.machines.GPUs(n) }

// Ready returns the Ready condition of a node. That of a node that is not heard of any more changes when it is first
// asked for, as Kubernetes' controller changes it when it notices.
func (c *Cluster) Ready(n *Node) corev1.NodeCondition {
	ready := nodes.Ready(&n.Status)
	if c.Real || c.IsPosting(n) || c.machines.InGracePeriod(n) {
		delete(c.silent, n.Name)

		return ready
	}

	if _, noticed := c.silent[n.Name]; !noticed {
		if c.silent == nil {
			c.silent = map[string]metav1.Time{}
		}

		c.silent[n.Name] = metav1.Now()
	}

	ready.Status, ready.Reason, ready.Message = corev1.ConditionUnknown, "NodeStatusUnknown",
		"Kubelet stopped posting node status."
	ready.LastTransitionTime = c.silent[n.Name]

	return ready
}

// IsReady reports whether a node is ready.
func (c *Cluster) IsReady(n *Node) bool { return c.Ready(n).Status == corev1.ConditionTrue }

// Schedulable reports whether a ready node takes ordinary pods; CoreDNS also tolerates control planes.
func (c *Cluster) Schedulable() bool {
	for _, n := range c.Nodes {
		if c.IsReady(n) && !n.Spec.Unschedulable {
			return true
		}
	}

	return false
}

// ObserveNode stores a Node object of a real API server, or its deletion, and reports whether that is new: every
// control plane reports it. vmid is that of the running machine with its name; 0 if there is none.
func (c *Cluster) ObserveNode(object *corev1.Node, vmid int, deleted bool) bool {
	node, known := &Node{Node: *object, VMID: vmid}, c.Nodes[object.Name]
	same := known != nil && known.UID == node.UID

	if known != nil && vmid == 0 {
		node.VMID = known.VMID
	}

	if same && !deleted {
		order, err := resourceversion.CompareResourceVersion(node.ResourceVersion, known.ResourceVersion)
		if err == nil && order <= 0 {
			return false
		}
	}

	switch {
	case !deleted:
		c.Nodes[node.Name] = node
	case same:
		delete(c.Nodes, node.Name)
	default:
		return false
	}

	return true
}
