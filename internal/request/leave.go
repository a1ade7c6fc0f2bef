package request

import (
	"encoding/json"

	"talos-proxmox/internal/talos"
)

// Leave is the request of `talosops leave`: the node that leaves its cluster. It is written when the node is created
// and read when it is deleted: some control planes, which may include the node, may have left before.
type Leave struct {
	Common

	Node Node `json:"node"`
	// Protected reports whether its VM cannot be deleted: it then stays in its cluster.
	Protected bool `json:"protected,omitempty"`
	// Backup is where a snapshot of etcd is stored before a control plane leaves; nil = nowhere.
	Backup *Backup `json:"backup,omitempty"`
	// Authority is that of the Talos API, with which talosops issues itself a client: the request may be older than
	// client certificates get. Its key is a secret. Nil = Talosconfig, as in requests of earlier versions.
	Authority   *talos.Authority `json:"authority,omitempty"`
	Talosconfig string           `json:"talosconfig,omitempty"` // secret
}

// Keep returns the form in which the state keeps a request of `talosops leave`, a secret. It is whole: the request may
// run without the program.
func (l Leave) Keep() (string, error) {
	text, err := json.Marshal(l)
	if err != nil {
		return "", err
	}

	return keep(string(text), false)
}

// ParseLeave reads a request of `talosops leave` in the state, also of an earlier version.
func ParseLeave(text string) (req Leave, err error) {
	err = openInto(text, &req)

	return req, err
}

// LeaveResult is the result of `talosops leave`.
type LeaveResult struct {
	Node string `json:"node"`
	// Snapshot is the file of the snapshot of etcd.
	Snapshot string `json:"snapshot,omitempty"`
}
