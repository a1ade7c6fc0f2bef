package kube

import (
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Node is a Node object of the Kubernetes API.
type Node struct {
	Name    string
	Address string // its InternalIP
	Ready   bool
	Lost    bool   // its kubelet is not heard of any more
	Waits   string // what its kubelet says of its readiness
	Kubelet string // version
	Boot    string // id of the machine's boot that its kubelet has told of

	UID           string
	Version       string // of the object
	ProviderID    string
	Unschedulable bool
	Labels        map[string]string
	Annotations   map[string]string
	Taints        []corev1.Taint

	// Allocatable is what pods can ask for, as quantities by resource.
	Allocatable map[string]string
}

// Find returns the node of this name.
func Find(nodes []Node, name string) (Node, bool) {
	i := slices.IndexFunc(nodes, func(n Node) bool { return n.Name == name })
	if i < 0 {
		return Node{}, false
	}

	return nodes[i], true
}

// Offers is how many of a resource pods can ask a node for.
func (n Node) Offers(resource string) int {
	count, _ := strconv.Atoi(n.Allocatable[resource])

	return count
}

// NodePatch is a merge patch of a Node; nil removes a label or an annotation. The list of taints is replaced as a
// whole, so that the version must be the one it was read from: controllers change the list, too.
type NodePatch struct {
	Metadata struct {
		ResourceVersion string             `json:"resourceVersion"`
		Labels          map[string]*string `json:"labels,omitempty"`
		Annotations     map[string]*string `json:"annotations,omitempty"`
	} `json:"metadata"`
	Spec *SpecPatch `json:"spec,omitempty"`
}

// SpecPatch is the part of a NodePatch that changes its specification.
type SpecPatch struct {
	Taints        []corev1.Taint `json:"taints,omitzero"` // an empty list removes all
	Unschedulable *bool          `json:"unschedulable,omitempty"`
	ProviderID    string         `json:"providerID,omitempty"`
}

// Pod is a pod as far as a drain goes.
type Pod struct {
	Namespace, Name, UID string
	Leaving              bool // it was deleted, and ends its work
	Stays                bool // it belongs to its node: of a DaemonSet, or static
}

// Lease is the Lease object that says who changes the cluster: client-go's record of one, of a version. Times are told
// to people; a lease without them is still held.
type Lease struct {
	resourcelock.LeaderElectionRecord

	Name, Version string // without a version there is none
}

// PodNetwork is what a gate knows of the network of pods.
type PodNetwork struct {
	Released bool // Helm says so
	// Agents and DNS are what their workloads lack; empty = nothing.
	Agents, DNS string
}

// GPUCluster is what the Kubernetes API says of the GPUs of a node.
type GPUCluster struct {
	// Handler is that of the RuntimeClass nvidia; HasClass says whether there is one.
	Handler  string
	HasClass bool
	// Plugins are the DaemonSets of the device plugin, as namespace/name.
	Plugins []string
	// Pods are the device plugin's on the node.
	Pods []PluginPod
	// Warnings are what Kubernetes says of these DaemonSets and pods.
	Warnings []string
}

// PluginPod is a pod of the device plugin.
type PluginPod struct {
	Name    string // namespace/name
	Running bool
	Reason  string // why it does not run
}

// Is says whether it is the same holding: one process does not hold twice at the same moment.
func (l Lease) Is(other Lease) bool {
	return l.HolderIdentity != "" && l.HolderIdentity == other.HolderIdentity && l.AcquireTime.Equal(&other.AcquireTime)
}
