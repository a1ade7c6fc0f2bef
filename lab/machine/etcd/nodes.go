package etcd

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"talos-proxmox/internal/talos"
	"talos-proxmox/lab/machine/nodes"
	"talos-proxmox/lab/machine/pods"
)

// Node is a Node object as etcd keeps it.
type Node struct {
	nodes.Marks

	Name         string     `json:"name"`
	UID          string     `json:"uid"`
	Revision     uint64     `json:"revision,omitempty"` // of its last change
	Created      time.Time  `json:"created"`
	VMID         int        `json:"vmid"`
	Address      netip.Addr `json:"address"`
	Kubelet      string     `json:"kubelet"`
	Talos        string     `json:"talos"`
	Arch         string     `json:"arch"`
	MachineID    string     `json:"machineId,omitempty"`
	BootID       string     `json:"bootId,omitempty"`
	Cores        int        `json:"cores"`
	MemoryMiB    int        `json:"memoryMiB"`
	DiskBytes    int64      `json:"diskBytes"`
	ControlPlane bool       `json:"controlPlane,omitempty"`
	// CNI says that pods have a network; nodes without one are not ready.
	CNI bool `json:"cni"`
	// PodNetwork is what a real controller manager has given the node.
	PodNetwork string `json:"-"`

	// ready is what a real API server says of the node; the model finds it out.
	ready *corev1.NodeCondition
}

// Store keeps a Node.
func (c *Cluster) Store(n *Node) {
	c.committed(false)
	n.Revision = c.Revision
	c.Nodes[n.Name] = n
}

// Delete removes a Node at once.
func (c *Cluster) Delete(name string) {
	delete(c.Nodes, name)
	c.committed(true)
}

// SortedNodes are in the order of their names.
func (c *Cluster) SortedNodes() []*Node {
	return slices.SortedFunc(maps.Values(c.Nodes), func(a, b *Node) int { return cmp.Compare(a.Name, b.Name) })
}

// Posts says whether the kubelet of a node is heard by the cluster's control plane.
func (c *Cluster) Posts(n *Node) bool { return c.machines.Posts(c, n) }

// GPUs are those of a node that posts.
func (c *Cluster) GPUs(n *Node) pods.GPUs { return c.machines.GPUs(n) }

// Ready is the Ready condition of a node.
func (c *Cluster) Ready(n *Node) (status corev1.ConditionStatus, reason, message string) {
	switch {
	case n.ready != nil:
		return n.ready.Status, n.ready.Reason, n.ready.Message
	case !c.Posts(n) && !c.machines.Believed(n):
		return corev1.ConditionUnknown, "NodeStatusUnknown", "Kubelet stopped posting node status."
	case !n.CNI:
		return corev1.ConditionFalse, "KubeletNotReady", pods.NoCNI
	default:
		return corev1.ConditionTrue, "KubeletReady", "kubelet is posting ready status"
	}
}

// IsReady says whether a node is.
func (c *Cluster) IsReady(n *Node) bool {
	status, _, _ := c.Ready(n)

	return status == corev1.ConditionTrue
}

// Schedulable says whether a ready node takes ordinary pods; CoreDNS also tolerates control planes.
func (c *Cluster) Schedulable() bool {
	for _, n := range c.Nodes {
		if c.IsReady(n) && !n.Unschedulable {
			return true
		}
	}

	return false
}

// Observed is a Node object of a real API server.
func Observed(n *corev1.Node) *Node {
	revision, _ := strconv.ParseUint(n.ResourceVersion, 10, 64) // every revision of etcd is a number

	node := &Node{
		Name: n.Name, UID: string(n.UID), Revision: revision, Created: n.CreationTimestamp.Time,
		Marks: nodes.Of(n), PodNetwork: n.Spec.PodCIDR,
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

// SawNode takes over a Node object of a real API server, or that it was deleted, and says whether that is new: every
// control plane tells of it. vmid is that of the machine of its name; 0 where none runs.
func (c *Cluster) SawNode(node *Node, vmid int, deleted bool) bool {
	known := c.Nodes[node.Name]
	if known != nil {
		node.VMID, node.CNI, node.MachineID, node.BootID = known.VMID, known.CNI, known.MachineID, known.BootID
	}

	if vmid != 0 {
		node.VMID = vmid
	}

	switch {
	case deleted && known != nil && known.UID == node.UID:
		delete(c.Nodes, node.Name)
	case deleted || known != nil && known.UID == node.UID && known.Revision >= node.Revision:
		return false
	default:
		c.Nodes[node.Name] = node
	}

	return true
}

// Describe fills in what the kubelet says of its machine.
func (n *Node) Describe(s *corev1.NodeStatus) {
	release, _ := talos.ReleaseOf(n.Talos) // it has booted

	s.Capacity = corev1.ResourceList{ // but for devices
		corev1.ResourceCPU:              *resource.NewQuantity(int64(n.Cores), resource.DecimalSI),
		corev1.ResourceMemory:           *resource.NewQuantity(int64(n.MemoryMiB)<<20, resource.BinarySI),
		corev1.ResourceEphemeralStorage: *resource.NewQuantity(n.DiskBytes, resource.BinarySI),
		corev1.ResourcePods:             *resource.NewQuantity(110, resource.DecimalSI),
	}
	s.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: n.Address.String()}, {Type: corev1.NodeHostName, Address: n.Name},
	}
	s.NodeInfo = corev1.NodeSystemInfo{
		MachineID: n.MachineID, SystemUUID: n.MachineID, BootID: n.BootID,
		KernelVersion: release.Kernel, OSImage: "Talos (" + n.Talos + ")",
		ContainerRuntimeVersion: "containerd://" + release.Containerd, KubeletVersion: n.Kubelet,
		OperatingSystem: "linux", Architecture: n.Arch,
	}
}
