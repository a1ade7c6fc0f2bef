package request

// Leave is what `talosops leave` reads: which node leaves its cluster. It is written when the node is there, and read
// when it goes: of the control planes, which it may be among, some may have left before it.
type Leave struct {
	Common

	Node Node `json:"node"`
	// Protected says that its VM cannot be deleted: it stays in its cluster.
	Protected bool `json:"protected,omitempty"`
	// Backup is where a snapshot of etcd is kept before a control plane leaves; nil = nowhere.
	Backup      *Backup `json:"backup,omitempty"`
	Talosconfig string  `json:"talosconfig,omitempty"` // secret
}

// Left is what `talosops leave` prints.
type Left struct {
	Node string `json:"node"`
	// Snapshot is the file of etcd's snapshot that was taken before.
	Snapshot string `json:"snapshot,omitempty"`
}
