package request

// Rotate is what `talosops rotate` reads.
type Rotate struct {
	Common

	Workers     []Node `json:"workers,omitempty"`
	Talosconfig string `json:"talosconfig"` // secret: of the authority that is replaced
	// Next is a talosconfig of the new authority; secret. Without one the machines are only looked at.
	Next string `json:"next,omitempty"`
	// Key is the new authority's, in PEM; secret. Its certificate is that of Next.
	Key string `json:"key,omitempty"`
}

// Rotated is what `talosops rotate` prints.
type Rotated struct {
	Rotated bool `json:"rotated"` // or looked at
}
