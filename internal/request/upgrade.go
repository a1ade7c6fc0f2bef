package request

import "encoding/json"

// Upgrade is the request of `talosops upgrade`: the images that all nodes of a cluster should run, and how to upgrade.
type Upgrade struct {
	Common

	Workers []Node  `json:"workers,omitempty"`
	Images  []Image `json:"images"` // of all nodes
	GPUs    []GPUs  `json:"gpus,omitempty"`
	// ParallelWorkers is the number of workers to upgrade at a time; 0 = one.
	ParallelWorkers int `json:"parallelWorkers,omitempty"`
	// AllowDowngrade permits downgrades.
	AllowDowngrade bool `json:"allowDowngrade,omitempty"`
	// Backup is where a snapshot of etcd is stored before the first upgrade; nil = nowhere.
	Backup      *Backup `json:"backup,omitempty"`
	Talosconfig string  `json:"talosconfig,omitempty"` // secret
}

// ParseUpgrade returns the request in a stored call; the zero value for another text.
func ParseUpgrade(text string) (req Upgrade) {
	if json.Unmarshal([]byte(text), &req) != nil {
		return Upgrade{}
	}

	return req
}

// Image is the image that a node should run, and its installer.
type Image struct {
	Node      string `json:"node"`
	Installer string `json:"installer"`
	Talos     string `json:"talosVersion"`
	Schematic string `json:"schematic"`
}

// UpgradeResult is the result of `talosops upgrade`.
type UpgradeResult struct {
	// Upgraded are the nodes that this run upgraded.
	Upgraded []string `json:"upgraded"`
	// Left are machines that have not joined the cluster yet.
	Left []string `json:"left,omitempty"`
	// Snapshot is the file of the snapshot of etcd.
	Snapshot string `json:"snapshot,omitempty"`
}
