// Package kube is a small Kubernetes API server: enough of reading, discovery and tables for kubectl and client-go to look at a lab cluster, and the few
// writes that node maintenance needs.
package kube

import (
	"encoding/json"
	"slices"
	"time"
)

// Meta is the metadata of an object.
type Meta struct {
	Name              string            `json:"name"`
	Namespace         string            `json:"namespace,omitempty"`
	UID               string            `json:"uid,omitempty"`
	ResourceVersion   string            `json:"resourceVersion,omitempty"`
	CreationTimestamp time.Time         `json:"creationTimestamp,omitzero"`
	Labels            map[string]string `json:"labels,omitempty"`
	Annotations       map[string]string `json:"annotations,omitempty"`
	OwnerReferences   []OwnerReference  `json:"ownerReferences,omitempty"`
}

// OwnerReference names the owner of an object.
type OwnerReference struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	UID        string `json:"uid"`
	Controller bool   `json:"controller,omitempty"`
}

// Object is an API object.
type Object struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   Meta   `json:"metadata"`
	Spec       any    `json:"spec,omitempty"`
	Status     any    `json:"status,omitempty"`
	// Fields are further fields beside these, such as a ConfigMap's data.
	Fields map[string]any `json:"-"`
}

// MarshalJSON implements json.Marshaler: the further fields stand beside the others.
func (o Object) MarshalJSON() ([]byte, error) {
	type plain Object

	body, err := json.Marshal(plain(o))
	if err != nil || len(o.Fields) == 0 {
		return body, err
	}

	further, err := json.Marshal(o.Fields)
	if err != nil {
		return nil, err
	}

	return slices.Concat(body[:len(body)-1], []byte(","), further[1:]), nil
}

// field returns a nested text of the further fields.
func (o Object) field(path ...string) string {
	var value any = o.Fields

	for _, key := range path {
		values, ok := value.(map[string]any)
		if !ok {
			return ""
		}

		value = values[key]
	}

	text, _ := value.(string)

	return text
}

// Containers are the statuses of a pod's containers.
func (o Object) Containers() []ContainerStatus {
	s, _ := o.Status.(PodStatus)

	return s.ContainerStatuses
}

// Node is the node of a pod.
func (o Object) Node() string {
	switch s := o.Spec.(type) {
	case PodSpec:
		return s.NodeName
	case map[string]any:
		name, _ := s["nodeName"].(string)

		return name
	default:
		return ""
	}
}

// Taint of a node.
type Taint struct {
	Key    string `json:"key"`
	Value  string `json:"value,omitempty"`
	Effect string `json:"effect"`
}

// NodeSpec is the spec of a Node.
type NodeSpec struct {
	PodCIDR       string   `json:"podCIDR,omitempty"`
	PodCIDRs      []string `json:"podCIDRs,omitempty"`
	Taints        []Taint  `json:"taints,omitempty"`
	Unschedulable bool     `json:"unschedulable,omitempty"`
}

// NodeStatus is the status of a Node.
type NodeStatus struct {
	Capacity    map[string]string `json:"capacity,omitempty"`
	Allocatable map[string]string `json:"allocatable,omitempty"`
	Conditions  []Condition       `json:"conditions,omitempty"`
	Addresses   []Address         `json:"addresses,omitempty"`
	NodeInfo    NodeInfo          `json:"nodeInfo"`
}

// Address of a node.
type Address struct {
	Type    string `json:"type"`
	Address string `json:"address"`
}

// NodeInfo is what a kubelet says of its machine.
type NodeInfo struct {
	MachineID               string `json:"machineID"`
	SystemUUID              string `json:"systemUUID"`
	BootID                  string `json:"bootID"`
	KernelVersion           string `json:"kernelVersion"`
	OSImage                 string `json:"osImage"`
	ContainerRuntimeVersion string `json:"containerRuntimeVersion"`
	KubeletVersion          string `json:"kubeletVersion"`
	KubeProxyVersion        string `json:"kubeProxyVersion"`
	OperatingSystem         string `json:"operatingSystem"`
	Architecture            string `json:"architecture"`
}

// Condition of a node or pod.
type Condition struct {
	Type               string    `json:"type"`
	Status             string    `json:"status"`
	Reason             string    `json:"reason,omitempty"`
	Message            string    `json:"message,omitempty"`
	LastHeartbeatTime  time.Time `json:"lastHeartbeatTime,omitzero"`
	LastTransitionTime time.Time `json:"lastTransitionTime,omitzero"`
}

// PodSpec is the spec of a Pod.
type PodSpec struct {
	NodeName    string      `json:"nodeName,omitempty"`
	HostNetwork bool        `json:"hostNetwork,omitempty"`
	Containers  []Container `json:"containers"`
}

// Container of a pod.
type Container struct {
	Name  string `json:"name"`
	Image string `json:"image"`
}

// PodStatus is the status of a Pod.
type PodStatus struct {
	Phase             string            `json:"phase"`
	Conditions        []Condition       `json:"conditions,omitempty"`
	HostIP            string            `json:"hostIP,omitempty"`
	PodIP             string            `json:"podIP,omitempty"`
	StartTime         time.Time         `json:"startTime,omitzero"`
	ContainerStatuses []ContainerStatus `json:"containerStatuses,omitempty"`
}

// ContainerStatus of a pod.
type ContainerStatus struct {
	Name         string         `json:"name"`
	Image        string         `json:"image"`
	ImageID      string         `json:"imageID"`
	Ready        bool           `json:"ready"`
	RestartCount int            `json:"restartCount"`
	Started      bool           `json:"started"`
	State        map[string]any `json:"state"`
	LastState    map[string]any `json:"lastState,omitempty"`
}

// reason is why a container waits; empty when it does not.
func (s ContainerStatus) reason() string {
	waiting, _ := s.State["waiting"].(map[string]any)
	text, _ := waiting["reason"].(string)

	return text
}

// WorkloadSpec is the spec of a Deployment or DaemonSet.
type WorkloadSpec struct {
	Replicas *int     `json:"replicas,omitempty"`
	Selector Selector `json:"selector"`
	Template Template `json:"template"`
}

// Selector chooses pods.
type Selector struct {
	MatchLabels map[string]string `json:"matchLabels"`
}

// Template of a workload's pods.
type Template struct {
	Metadata Meta    `json:"metadata"`
	Spec     PodSpec `json:"spec"`
}

// DaemonSetStatus is the status of a DaemonSet.
type DaemonSetStatus struct {
	CurrentNumberScheduled int `json:"currentNumberScheduled"`
	DesiredNumberScheduled int `json:"desiredNumberScheduled"`
	NumberAvailable        int `json:"numberAvailable"`
	NumberMisscheduled     int `json:"numberMisscheduled"`
	NumberReady            int `json:"numberReady"`
	UpdatedNumberScheduled int `json:"updatedNumberScheduled"`
}

// DeploymentStatus is the status of a Deployment.
type DeploymentStatus struct {
	Replicas          int `json:"replicas"`
	ReadyReplicas     int `json:"readyReplicas"`
	AvailableReplicas int `json:"availableReplicas"`
	UpdatedReplicas   int `json:"updatedReplicas"`
}

// ready is the Ready condition.
func ready(conditions []Condition) Condition {
	for _, c := range conditions {
		if c.Type == "Ready" {
			return c
		}
	}

	return Condition{Status: "Unknown"}
}
