package kube

import (
	"net/netip"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Node is a Node object of the Kubernetes API.
type Node struct {
	Name         string
	Address      netip.Addr // its first InternalIP of IPv4; invalid = none
	Ready        bool
	Unreachable  bool      // the condition Ready is Unknown: its kubelet stopped reporting
	ReadyMessage string    // message of the condition Ready
	ReadySince   time.Time // since when the condition Ready is what it is
	Kubelet      string    // version
	BootID       string    // boot id of the machine, as the kubelet last reported it

	UID           string
	Version       string // the object's resourceVersion
	ProviderID    string
	Unschedulable bool
	Labels        map[string]string
	Annotations   map[string]string
	Taints        []corev1.Taint

	// Allocatable are quantities by resource.
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

// Offers returns how many of a resource the node has for pods.
func (n Node) Offers(resource string) int {
	count, _ := strconv.Atoi(n.Allocatable[resource])

	return count
}

// NodePatch is a merge patch of a Node; nil removes a label or an annotation. It replaces the whole list of taints,
// which controllers change as well: the resourceVersion must be that of the node whose taints were read.
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

// Pod is what a drain needs to know of a pod.
type Pod struct {
	Namespace, Name, UID string
	Terminating          bool // it is terminating
	IgnoredByDrain       bool // a drain ignores it: a DaemonSet's, or static
}

// Lease is a Lease object, whose holder changes the cluster. Its times are only shown to people: a lease without them
// is still held.
type Lease struct {
	resourcelock.LeaderElectionRecord

	Name, Version string // resourceVersion; empty = the object does not exist
}

// PodNetwork is the state of the pod network.
type PodNetwork struct {
	Released bool // Helm has a deployed release of the CNI
	// Agents and DNS are the problems of their workloads; empty = rolled out.
	Agents, DNS string
}

// GPUCluster is the Kubernetes side of a node's GPUs.
type GPUCluster struct {
	// Handler is that of the RuntimeClass nvidia, if HasClass.
	Handler  string
	HasClass bool
	// Plugins are the DaemonSets of the device plugin, as namespace/name.
	Plugins []string
	// Pods are the device plugin's pods on the node.
	Pods []PluginPod
	// Warnings are the messages of warning events about these DaemonSets and pods.
	Warnings []string
}

// PluginPod is a pod of the device plugin.
type PluginPod struct {
	Name    string // namespace/name
	Running bool
	Reason  string // why it does not run
}

// SameHolder reports whether both have the same holder since the same moment.
func (l Lease) SameHolder(other Lease) bool {
	return l.HolderIdentity != "" && l.HolderIdentity == other.HolderIdentity && l.AcquireTime.Equal(&other.AcquireTime)
}
