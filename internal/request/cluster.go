// Package request defines the requests that components write and the verbs of talosops read from standard input. They
// are in the states of stacks: another order of fields would run every command again.
package request

import (
	"net/netip"

	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/talos"
	"talos-proxmox/internal/tlsprobe"
)

// Common is the part that requests about a cluster share.
type Common struct {
	// Timeout and Interval limit the waiting and set its polling interval: 15m, 2s. Empty = the verb's default.
	Timeout  string `json:"timeout,omitempty"`
	Interval string `json:"interval,omitempty"`
	// DrainTimeout limits the drain of a node. Empty = 5m.
	DrainTimeout string `json:"drainTimeout,omitempty"`
	// HealthCheck is a command of the user, for sh -c, that succeeds if the cluster tolerates the loss of a machine.
	// Empty = none.
	HealthCheck string `json:"healthCheck,omitempty"`
	// Maintenance says when machines may be restarted and upgraded, and what runs before and after that; nil = at any
	// time, and nothing.
	Maintenance *Maintenance `json:"maintenance,omitempty"`
	// Bootstrapped reports whether the cluster was bootstrapped before the run that wrote the request, or may have been:
	// then control planes without etcd data have lost it. A request in the state keeps its value until something else of
	// it changes.
	Bootstrapped bool `json:"bootstrapped,omitempty"`
	// ControlPlanes are those to query, in order.
	ControlPlanes []Node `json:"controlPlanes"`
}

// CommonFields returns the shared part of a request.
func (c *Common) CommonFields() *Common { return c }

// Node is a machine with its own address.
type Node struct {
	Name    string     `json:"name"`
	Address netip.Addr `json:"address"`
}

// NodeOf returns the node of a machine.
func NodeOf(m tlsprobe.Machine) Node { return Node{Name: m.Name, Address: m.Address} }

// NodesOf returns the nodes of a plan for a request.
func NodesOf(nodes []spec.Node) (list []Node) {
	for _, n := range nodes {
		list = append(list, Node{Name: n.Name, Address: n.Address.Addr()})
	}

	return list
}

// Bootstrap is the request of `talosops bootstrap`.
type Bootstrap struct {
	Common

	Talosconfig string `json:"talosconfig,omitempty"` // secret
	// Empty permits an empty etcd for a cluster that was bootstrapped before and whose control planes have no etcd data.
	// Each value permits it once.
	Empty string `json:"empty,omitempty"`
}

// BootstrapResult is the result of `talosops bootstrap`, which also reads that of the last run.
type BootstrapResult struct {
	Bootstrapped  bool     `json:"bootstrapped"`
	ControlPlanes []string `json:"controlPlanes"`
	Empty         string   `json:"empty,omitempty"` // the value that was used up
}

// Mark is the request of `talosops mark`.
type Mark struct {
	Common

	Marks      []Marks `json:"marks,omitempty"`
	Kubeconfig string  `json:"kubeconfig,omitempty"` // secret
}

// Marks are the planned labels and taints of a node, and its provider ID.
type Marks struct {
	Node   string            `json:"node"`
	Labels map[string]string `json:"labels,omitempty"`
	Taints []talos.Taint     `json:"taints,omitempty"`
	// ProviderID is the node's spec.providerID; empty = any.
	ProviderID string `json:"providerId,omitempty"`
}

// Wait is the request of `talosops wait` and `talosops versions`: what a healthy cluster has, and the planned versions.
type Wait struct {
	Common

	Workers           []Node     `json:"workers,omitempty"`
	KubernetesVersion string     `json:"kubernetesVersion,omitempty"`
	GPUs              []GPUs     `json:"gpus,omitempty"`
	Versions          []Versions `json:"versions,omitempty"`
	// CNI is the Helm release of the CNI; empty = none is required.
	CNI         string `json:"cni,omitempty"`
	Talosconfig string `json:"talosconfig,omitempty"` // secret
	Kubeconfig  string `json:"kubeconfig,omitempty"`  // secret
}

// Planned returns the planned versions by node. Workers report no API server, so it is not compared.
func (w Wait) Planned() map[string]talos.NodeVersions {
	planned := map[string]talos.NodeVersions{}
	for _, v := range w.Versions {
		planned[v.Node] = talos.NodeVersions{
			Talos: v.Talos, Schematic: v.Schematic, Kubelet: w.KubernetesVersion, APIServer: w.KubernetesVersion,
		}
	}

	return planned
}

// GPUs is the number of GPUs that a node must offer to pods.
type GPUs struct {
	Node  string `json:"node"`
	Count int    `json:"count"`
	// Resource is the name of the extended resource; empty = NVIDIA's.
	Resource string `json:"resource,omitempty"`
}

// Versions are the planned versions of a node.
type Versions struct {
	Node      string `json:"node"`
	Talos     string `json:"talosVersion"`
	Schematic string `json:"schematic"`
}
