package request

import (
	"fmt"
	"strings"
	"time"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/talos"
)

// Status is what `talosops status` reads: what is planned for a cluster, and what was applied to it last.
type Status struct {
	Wait

	Cluster string `json:"cluster"`
	// Configurations are the machine configurations that were applied last, by node; secret. A node without one is not
	// compared.
	Configurations map[string]string `json:"configurations,omitempty"`
	// Reader is a talosconfig with the role os:reader, for all questions but that for machine configurations; secret.
	// Empty = that of the administrator is for all.
	Reader string `json:"reader,omitempty"`
	// Backup says where snapshots of etcd are kept; without it none is looked for.
	Backup *Kept `json:"backup,omitempty"`
	// RebootPending are the Proxmox hosts that have to reboot.
	RebootPending []string `json:"rebootPending,omitempty"`
	// Credentials are what is wrong with those for Proxmox.
	Credentials problem.List `json:"credentials,omitempty"`
}

// Kept says where snapshots of etcd are, and how old the newest may be.
type Kept struct {
	Directory string `json:"directory"`
	Name      string `json:"name"`             // that files' names begin with
	MaxAge    string `json:"maxAge,omitempty"` // 48h; empty = any
	// OffSite is the newest copy elsewhere; nil = none is kept there.
	OffSite *OffSite `json:"offSite,omitempty"`
}

// OffSite is the newest snapshot of a cluster elsewhere; without an address there is none.
type OffSite struct {
	NewestBackup

	Problem string `json:"problem,omitempty"` // why it is not known
}

// The status of a cluster as a whole.
const (
	StatusOK      = "ok"
	StatusCare    = "care"    // something needs care
	StatusUnknown = "unknown" // no one answered
)

// ClusterStatus is what `talosops status` prints: how a cluster is.
type ClusterStatus struct {
	Cluster string    `json:"cluster"`
	Status  string    `json:"status"`
	Asked   time.Time `json:"asked"`
	// Care is what needs care, by node, certificate and the like, in the order of the nodes.
	Care         problem.List     `json:"care,omitempty"`
	Members      []Member         `json:"members,omitempty"` // of etcd
	Nodes        []NodeStatus     `json:"nodes"`
	Certificates []Certificate    `json:"certificates,omitempty"`
	Backup       *NewestBackup    `json:"backup,omitempty"`
	OffSite      *NewestBackup    `json:"offSite,omitempty"`
	Drift        []NodeDifference `json:"drift,omitempty"`
}

// Member is one of etcd.
type Member struct {
	Name    string `json:"name"`
	Leader  bool   `json:"leader,omitempty"`
	Learner bool   `json:"learner,omitempty"`
}

// NodeStatus is how a node is; what it does not tell is empty.
type NodeStatus struct {
	Name    string `json:"name"`
	Address string `json:"address"`
	Role    string `json:"role"`
	talos.NodeVersions

	// Ready is empty where no Kubernetes API tells.
	Ready    string  `json:"ready,omitempty"` // yes, no, or no CNI
	Cordoned bool    `json:"cordoned,omitempty"`
	GPUs     []Offer `json:"gpus,omitempty"`
	// Staged says that it takes another configuration at its next reboot.
	Staged bool `json:"staged,omitempty"`
	// AwaitsRestart says that parts of its configuration have no effect before it restarts, which an interrupted run left.
	AwaitsRestart bool `json:"awaitsRestart,omitempty"`
}

// Offer is how many GPUs a node offers to pods, of how many it has to.
type Offer struct {
	Resource string `json:"resource"`
	Offered  int    `json:"offered"`
	Planned  int    `json:"planned"`
}

// NodeDifference is where a node is not what is planned, or was applied last.
type NodeDifference struct {
	Node string `json:"node"`
	// Versions says in words what it runs that is not planned.
	Versions string `json:"versions,omitempty"`
	// Configuration are paths in the machine configuration whose values differ from those that were applied last.
	Configuration []string `json:"configuration,omitempty"`
	// Unknown says why it could not be compared, or not all of it.
	Unknown string `json:"unknown,omitempty"`
	// Cluster is its own, where nodes of several are compared.
	Cluster string `json:"cluster,omitempty"`
}

// Lines say in words what differs, one thing each.
func (d NodeDifference) Lines() []string {
	var lines []string

	if d.Versions != "" {
		lines = append(lines, d.Versions)
	}

	if len(d.Configuration) > 0 {
		lines = append(lines, fmt.Sprintf(
			"its machine configuration is not the one that was applied last: %s; `pulumi up --replace '**::%s-configuration'` "+
				"applies that again", strings.Join(d.Configuration, ", "), d.Node))
	}

	if d.Unknown != "" {
		lines = append(lines, "cannot be compared: "+d.Unknown)
	}

	return lines
}

// Certificate is one that ends.
type Certificate struct {
	Of   string    `json:"of"`
	Ends time.Time `json:"ends"`
}

// NewestBackup is the newest snapshot of etcd.
type NewestBackup struct {
	Snapshot string    `json:"snapshot"` // path, or address
	Taken    time.Time `json:"taken"`
}
