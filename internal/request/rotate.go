package request

// Rotate is the request of `talosops rotate`.
type Rotate struct {
	Common

	Workers     []Node `json:"workers,omitempty"`
	Talosconfig string `json:"talosconfig"` // secret; trusts the Talos authority, even if that is replaced
	// Kubeconfig trusts the Kubernetes authority that is replaced; secret. Empty = the Talos authority is replaced.
	Kubeconfig string `json:"kubeconfig,omitempty"`
	// Next is a talosconfig or kubeconfig of the new authority; secret. Empty = machines are only checked.
	Next string `json:"next,omitempty"`
	// Key is the key of the new authority, in PEM; secret. Its certificate is that of Next.
	Key string `json:"key,omitempty"`
}

// RotateResult is the result of `talosops rotate`.
type RotateResult struct {
	Rotated bool `json:"rotated"` // or checked
}
