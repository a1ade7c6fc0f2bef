// Package request holds what the verbs of talosops read from standard input: components write it, talosops reads
// it. The order of fields is that of the state that stacks have: another one would run every command again.
package request

import "talos-proxmox/internal/talos"

// Common is the part that the requests about a cluster share.
type Common struct {
	// Timeout and Interval say how long to look, and how often: 15m, 2s. Empty = the verb's own.
	Timeout  string `json:"timeout,omitempty"`
	Interval string `json:"interval,omitempty"`
	// DrainTimeout is how long pods may take to leave a node. Empty = 5m.
	DrainTimeout string `json:"drainTimeout,omitempty"`
	// HealthCheck is a command of the user's own, for sh -c, which succeeds where the cluster bears that a machine is
	// taken away. Empty = there is none.
	HealthCheck string `json:"healthCheck,omitempty"`
	// ControlPlanes are those that are asked, in order.
	ControlPlanes []Node `json:"controlPlanes"`
}

// Stated returns what every request has.
func (c *Common) Stated() *Common { return c }

// Node is a machine with its own address.
type Node struct {
	Name    string `json:"name"`
	Address string `json:"address"`
}

// Bootstrap is what `talosops bootstrap` reads.
type Bootstrap struct {
	Common

	Talosconfig string `json:"talosconfig,omitempty"` // secret
	// Empty has etcd begin empty on a cluster that was bootstrapped before, where no control plane has data of etcd. Each
	// text does so once.
	Empty string `json:"empty,omitempty"`
}

// Bootstrapped is what `talosops bootstrap` prints, and reads of the run before.
type Bootstrapped struct {
	Bootstrapped  bool     `json:"bootstrapped"`
	ControlPlanes []string `json:"controlPlanes"`
	Empty         string   `json:"empty,omitempty"` // that was asked for, and does not count again
}

// Mark is what `talosops mark` reads.
type Mark struct {
	Common

	Marks      []Marks `json:"marks,omitempty"`
	Kubeconfig string  `json:"kubeconfig,omitempty"` // secret
}

// Marks are the labels and taints that a node has to have, and its provider id.
type Marks struct {
	Node   string            `json:"node"`
	Labels map[string]string `json:"labels,omitempty"`
	Taints []talos.Taint     `json:"taints,omitempty"`
	// ProviderID is what Kubernetes calls the node's machine; empty = whatever it is.
	ProviderID string `json:"providerId,omitempty"`
}

// Wait is what `talosops wait` and `talosops versions` read: what a healthy cluster is, and what is planned for its
// nodes.
type Wait struct {
	Common

	Workers           []Node     `json:"workers,omitempty"`
	KubernetesVersion string     `json:"kubernetesVersion,omitempty"`
	GPUs              []GPUs     `json:"gpus,omitempty"`
	Versions          []Versions `json:"versions,omitempty"`
	// CNI is the Helm release that brings pods their network; empty = nobody has to.
	CNI         string `json:"cni,omitempty"`
	Talosconfig string `json:"talosconfig,omitempty"` // secret
	Kubeconfig  string `json:"kubeconfig,omitempty"`  // secret
}

// Planned is what is planned for the nodes, by name. A worker tells of no API server, and is not compared by one.
func (w Wait) Planned() map[string]talos.NodeVersions {
	planned := map[string]talos.NodeVersions{}
	for _, v := range w.Versions {
		planned[v.Node] = talos.NodeVersions{
			Talos: v.Talos, Schematic: v.Schematic, Kubelet: w.KubernetesVersion, APIServer: w.KubernetesVersion,
		}
	}

	return planned
}

// GPUs are how many a node has to offer to pods.
type GPUs struct {
	Node  string `json:"node"`
	Count int    `json:"count"`
	// Resource is the name that they are offered by; empty = NVIDIA's own.
	Resource string `json:"resource,omitempty"`
}

// Versions is what is planned for a node.
type Versions struct {
	Node      string `json:"node"`
	Talos     string `json:"talosVersion"`
	Schematic string `json:"schematic"`
}
