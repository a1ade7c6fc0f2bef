package request

// Upgrade is what `talosops upgrade` reads: what every node of a cluster has to run, and how they are brought to it.
type Upgrade struct {
	Common

	Workers []Node  `json:"workers,omitempty"`
	Images  []Image `json:"images"` // of all nodes
	GPUs    []GPUs  `json:"gpus,omitempty"`
	// ParallelWorkers is how many workers are upgraded at a time; 0 = one.
	ParallelWorkers int `json:"parallelWorkers,omitempty"`
	// AllowDowngrade lets nodes get an older version than they run.
	AllowDowngrade bool `json:"allowDowngrade,omitempty"`
	// Backup is where a snapshot of etcd is kept before the first node is upgraded; nil = nowhere.
	Backup      *Backup `json:"backup,omitempty"`
	Talosconfig string  `json:"talosconfig,omitempty"` // secret
}

// Image is what a node has to run, and the installer that brings it there.
type Image struct {
	Node      string `json:"node"`
	Installer string `json:"installer"`
	Talos     string `json:"talosVersion"`
	Schematic string `json:"schematic"`
}

// Upgraded is what `talosops upgrade` prints.
type Upgraded struct {
	// Upgraded are the nodes that this run brought to their image.
	Upgraded []string `json:"upgraded"`
	// Left are machines that are no part of the cluster yet.
	Left []string `json:"left,omitempty"`
	// Snapshot is the file of etcd's snapshot that was taken before.
	Snapshot string `json:"snapshot,omitempty"`
}
