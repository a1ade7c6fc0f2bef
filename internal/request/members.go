package request

// Members is the request of `talosops members`: what the control planes of a cluster say about its etcd and some nodes.
type Members struct {
	Common

	// Nodes are those to look for, of any role.
	Nodes       []Node `json:"nodes,omitempty"`
	Talosconfig string `json:"talosconfig"` // secret
}

// MembersResult is the result of `talosops members`.
type MembersResult struct {
	// HasData are the control planes with etcd data, Waiting those that have none and wait for a cluster. Others do not
	// answer, or boot.
	HasData []string `json:"hasData,omitempty"`
	Waiting []string `json:"waiting,omitempty"`
	// Listed reports whether a control plane listed the members and the registered nodes, and Present are the requested
	// nodes among them.
	Listed  bool     `json:"listed"`
	Present []string `json:"present,omitempty"`
}
