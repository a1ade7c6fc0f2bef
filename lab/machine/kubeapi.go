package machine

import (
	"cmp"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"talos-proxmox/lab/machine/kube"
)

// kernelVersion is the Linux kernel of Talos 1.12.
const kernelVersion = "6.18.18-talos"

const kubeSystem = "kube-system"

// modelCluster shows the cluster through the API server of one control plane. It implements kube.Cluster.
type modelCluster struct{ m *machine }

var _ kube.Cluster = modelCluster{}

// etcd is the cluster's; none where the control plane has no member. The caller unlocks.
func (c modelCluster) etcd() (e *etcd, unlock func()) {
	c.m.ms.mu.Lock()

	if c.m.cluster == nil || c.m.etcd == nil {
		return &etcd{}, c.m.ms.mu.Unlock
	}

	return c.m.etcd, c.m.ms.mu.Unlock
}

// Version implements kube.Cluster.
func (c modelCluster) Version() string {
	c.m.ms.mu.Lock()
	defer c.m.ms.mu.Unlock()

	if c.m.config == nil {
		return ""
	}

	return imageTag(c.m.config.Cluster().APIServer().Image())
}

// Healthy implements kube.Cluster.
func (c modelCluster) Healthy() bool {
	c.m.ms.mu.Lock()
	defer c.m.ms.mu.Unlock()

	return c.m.apiReady()
}

// Nodes implements kube.Cluster.
func (c modelCluster) Nodes() []corev1.Node {
	e, unlock := c.etcd()
	defer unlock()

	nodes := make([]corev1.Node, 0, len(e.nodes))
	for _, n := range e.sortedNodes() {
		nodes = append(nodes, e.nodeObject(n))
	}

	return nodes
}

// DeleteNode implements kube.Cluster.
func (c modelCluster) DeleteNode(name string) error {
	e, unlock := c.etcd()
	defer unlock()

	if e.nodes[name] == nil {
		return apierrors.NewNotFound(corev1.Resource("nodes"), name)
	}

	// A kubelet does not register its node again before it restarts; until then it posts into the void.
	if m := e.ms.running[e.nodes[name].VMID]; m != nil && m.hostname == name {
		m.kubelet.posting = false
		m.changed.fire()
	}

	delete(e.nodes, name)
	e.committed(true)
	c.m.cluster.changed.fire()

	return nil
}

// PatchNode implements kube.Cluster.
func (c modelCluster) PatchNode(name string, change func(*corev1.Node) error) (*corev1.Node, error) {
	e, unlock := c.etcd()
	defer unlock()

	current := e.nodes[name]
	if current == nil {
		return nil, apierrors.NewNotFound(corev1.Resource("nodes"), name)
	}

	o := e.nodeObject(current)
	version := o.ResourceVersion

	if err := change(&o); err != nil {
		return nil, err
	}

	if o.ResourceVersion != version {
		return nil, apierrors.NewConflict(corev1.Resource("nodes"), name, fmt.Errorf("the object has been modified; "+
			"please apply your changes to the latest version and try again"))
	}

	// The controllers' own taints follow from the node's condition: a change of them is undone.
	after := *current
	after.Labels, after.Annotations, after.Unschedulable = o.Labels, o.Annotations, o.Spec.Unschedulable
	after.Taints = slices.DeleteFunc(o.Spec.Taints, func(t corev1.Taint) bool {
		return slices.Contains(conditionTaints, t.Key)
	})
	e.store(&after)

	if m := e.ms.running[after.VMID]; m != nil && m.hostname == name && m.cluster == c.m.cluster {
		m.applyNode(e)
	}

	e.persist()
	c.m.cluster.changed.fire()

	o = e.nodeObject(e.nodes[name])

	return &o, nil
}

// RuntimeClasses implements kube.Cluster.
func (c modelCluster) RuntimeClasses() []nodev1.RuntimeClass {
	e, unlock := c.etcd()
	defer unlock()

	return storedAs[nodev1.RuntimeClass](e, "runtimeclasses")
}

// DaemonSets implements kube.Cluster.
func (c modelCluster) DaemonSets() []appsv1.DaemonSet {
	e, unlock := c.etcd()
	defer unlock()

	return storedAs[appsv1.DaemonSet](e, "daemonsets")
}

// Pods implements kube.Cluster.
func (c modelCluster) Pods(node string) []corev1.Pod {
	e, unlock := c.etcd()
	defer unlock()

	pods := []corev1.Pod{}

	for _, n := range e.sortedNodes() {
		for _, p := range e.daemonPods(n) {
			if node == "" || node == n.Name {
				pods = append(pods, p.object())
			}
		}
	}

	return pods
}

func (e *etcd) sortedNodes() []*kubeNode {
	nodes := make([]*kubeNode, 0, len(e.nodes))
	for _, n := range e.nodes {
		nodes = append(nodes, n)
	}

	slices.SortFunc(nodes, func(a, b *kubeNode) int { return cmp.Compare(a.Name, b.Name) })

	return nodes
}

// conditionTaints are the keys of the taints that controllers set and remove by a node's condition.
var conditionTaints = []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable, corev1.TaintNodeUnschedulable}

// taints are a node's own and those of its condition; the caller holds the lock.
func (e *etcd) taints(n *kubeNode) []corev1.Taint {
	taints := slices.Clone(n.Taints)

	if status, _, _ := e.nodeState(n); status != "True" {
		key := map[string]string{"False": corev1.TaintNodeNotReady, "Unknown": corev1.TaintNodeUnreachable}[status]
		taints = append(taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule},
			corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute})
	}

	if n.Unschedulable {
		taints = append(taints, corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
	}

	return taints
}

// nodeObject is a node as the API shows it; the caller holds the lock.
func (e *etcd) nodeObject(n *kubeNode) corev1.Node {
	status, reason, message := e.nodeState(n)
	capacity := n.capacity()

	for _, p := range e.daemonPods(n) {
		for name, count := range p.state.Offers {
			capacity[corev1.ResourceName(name)] = *resource.NewQuantity(int64(count), resource.DecimalSI)
		}
	}

	return corev1.Node{
		TypeMeta: metav1.TypeMeta{Kind: "Node", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{
			Name: n.Name, UID: types.UID(n.UID), CreationTimestamp: metav1.NewTime(n.Created),
			Labels: n.Labels, Annotations: n.Annotations, ResourceVersion: fmt.Sprint(n.Revision),
		},
		Spec: corev1.NodeSpec{Taints: e.taints(n), Unschedulable: n.Unschedulable},
		Status: corev1.NodeStatus{
			Capacity: capacity, Allocatable: capacity, Addresses: n.addresses(), NodeInfo: n.systemInfo(),
			Conditions: []corev1.NodeCondition{{
				Type: corev1.NodeReady, Status: corev1.ConditionStatus(status), Reason: reason, Message: message,
				LastTransitionTime: metav1.NewTime(n.Created),
			}},
		},
	}
}

// capacity is what a node has but for devices.
func (n *kubeNode) capacity() corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:              *resource.NewQuantity(int64(n.Cores), resource.DecimalSI),
		corev1.ResourceMemory:           *resource.NewQuantity(int64(n.MemoryMiB)<<20, resource.BinarySI),
		corev1.ResourceEphemeralStorage: *resource.NewQuantity(n.DiskBytes, resource.BinarySI),
		corev1.ResourcePods:             *resource.NewQuantity(110, resource.DecimalSI),
	}
}

func (n *kubeNode) addresses() []corev1.NodeAddress {
	return []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: n.Address.String()}, {Type: corev1.NodeHostName, Address: n.Name},
	}
}

func (n *kubeNode) systemInfo() corev1.NodeSystemInfo {
	return corev1.NodeSystemInfo{
		MachineID: n.MachineID, SystemUUID: n.MachineID, KernelVersion: kernelVersion, OSImage: "Talos (" + n.Talos + ")",
		ContainerRuntimeVersion: "containerd://2.1.6", KubeletVersion: n.Kubelet,
		OperatingSystem: "linux", Architecture: n.Arch,
	}
}
