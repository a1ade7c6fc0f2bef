package request

// Rotate is what `talosops rotate` reads.
type Rotate struct {
	Common

	Workers     []Node `json:"workers,omitempty"`
	Talosconfig string `json:"talosconfig"` // secret: of Talos' authority, also where that is replaced
	// Kubeconfig is of the authority of Kubernetes where that is replaced; secret. Without one it is Talos' own.
	Kubeconfig string `json:"kubeconfig,omitempty"`
	// Next is a talosconfig of the new authority, or a kubeconfig; secret. Without one the machines are only looked at.
	Next string `json:"next,omitempty"`
	// Key is the new authority's, in PEM; secret. Its certificate is that of Next.
	Key string `json:"key,omitempty"`
}

// Rotated is what `talosops rotate` prints.
type Rotated struct {
	Rotated bool `json:"rotated"` // or looked at
}
