package request

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/talos"
)

// Status is the request of `talosops status`: what is planned for a cluster, and what was applied to it last.
type Status struct {
	Wait

	Cluster string `json:"cluster"`
	// Configurations are the last applied machine configurations, by node; secret. Nodes without one are not compared.
	Configurations map[string]string `json:"configurations,omitempty"`
	// Reader is a talosconfig with the role os:reader, for all queries except of machine configurations; secret. Empty =
	// Talosconfig is used for all.
	Reader string `json:"reader,omitempty"`
	// Users are the clients that users have, the stack's outputs, whose certificates are shown; nil = those of the
	// request.
	Users *Clients `json:"users,omitempty"`
	// Backup is where snapshots of etcd are stored; nil = not checked.
	Backup *BackupStatus `json:"backup,omitempty"`
	// RebootPending are the Proxmox hosts with a pending reboot.
	RebootPending []string `json:"rebootPending,omitempty"`
	// Credentials are problems of the Proxmox credentials.
	Credentials problem.List `json:"credentials,omitempty"`
	// Placement is where the nodes' machines are; nil = not asked.
	Placement *Placement `json:"placement,omitempty"`
	// LocalVolumes asks for the volumes of pods that are on nodes.
	LocalVolumes bool `json:"localVolumes,omitempty"`
}

// Placement is where Proxmox has the machines of a cluster's nodes.
type Placement struct {
	Stack    string          `json:"stack"` // for commands
	Machines []PlacedMachine `json:"machines,omitempty"`
	// NoQuorum: Proxmox' cluster has no quorum, so that hosts may only seem offline.
	NoQuorum bool `json:"noQuorum,omitempty"`
	// Hosts are those of Proxmox' cluster.
	Hosts []PlacementHost `json:"hosts,omitempty"`
	// NotAsked says what is unknown, and why.
	NotAsked []string `json:"notAsked,omitempty"`
}

// States of a host in Proxmox' cluster: one that answers, one that does not, and one whose pvestatd has not reported
// lately.
const (
	HostOnline  = "online"
	HostOffline = "offline"
	HostUnknown = "unknown"
)

// PlacementHost is a host of Proxmox' cluster. Only with Sys.Audit on it does Proxmox tell its load; otherwise the
// numbers are 0.
type PlacementHost struct {
	Name   string  `json:"name"`
	Status string  `json:"status"`
	Cores  int     `json:"cores,omitempty"`
	CPU    float64 `json:"cpu,omitempty"` // part of the cores that is busy, 0 to 1
	// MemoryBytes is the memory, and MemoryUsedBytes what of it is used.
	MemoryBytes     int64 `json:"memoryBytes,omitempty"`
	MemoryUsedBytes int64 `json:"memoryUsedBytes,omitempty"`
}

// PlacedMachine is the machine of a node. Host is empty if Proxmox has none, or shows none to the credentials.
type PlacedMachine struct {
	Node string `json:"node"`
	VMID int    `json:"vmid"`
	Host string `json:"host,omitempty"`
	// HostStatus is online, offline or unknown.
	HostStatus string `json:"hostStatus,omitempty"`
	// PlannedHost is another one, where the stack file or the last run has it: somebody moved the machine.
	PlannedHost string `json:"plannedHost,omitempty"`
	Status      string `json:"status,omitempty"` // running, stopped, unknown
	// HA is the state in Proxmox' high availability; empty = it has none, or was not asked.
	HA string `json:"ha,omitempty"`
	// Replication says which copies of its disks on other hosts fail, or do not exist yet.
	Replication []string `json:"replication,omitempty"`
}

// Of returns the placement of a node's machine, empty if it is unknown.
func (p *Placement) Of(node string) (m PlacedMachine) {
	if p == nil {
		return m
	}

	if i := slices.IndexFunc(p.Machines, func(m PlacedMachine) bool { return m.Node == node }); i >= 0 {
		return p.Machines[i]
	}

	return m
}

// Clients are a talosconfig and a kubeconfig; secret. Empty = there is none.
type Clients struct {
	Talosconfig string `json:"talosconfig,omitempty"`
	Kubeconfig  string `json:"kubeconfig,omitempty"`
}

// BackupStatus is the location of snapshots of etcd, and the maximum age of the newest.
type BackupStatus struct {
	Directory string `json:"directory"`
	Name      string `json:"name"`             // prefix of file names
	ID        string `json:"id,omitempty"`     // of the cluster in file names; empty = unknown
	MaxAge    string `json:"maxAge,omitempty"` // 48h; empty = any
	// OffSite is the newest off-site copy; nil = none is configured.
	OffSite *OffSite `json:"offSite,omitempty"`
}

// OffSite is the newest off-site snapshot of a cluster; an empty Snapshot = there is none.
type OffSite struct {
	NewestBackup

	Problem string `json:"problem,omitempty"` // why it is unknown
}

// The status of a cluster as a whole.
const (
	StatusOK      = "ok"
	StatusCare    = "care"    // something needs attention
	StatusUnknown = "unknown" // no machine answered
)

// ClusterStatus is the result of `talosops status`.
type ClusterStatus struct {
	Cluster string    `json:"cluster"`
	Status  string    `json:"status"`
	Asked   time.Time `json:"asked"`
	// Care lists what needs attention, by node, certificate and so on, in the order of the nodes.
	Care    problem.List `json:"care,omitempty"`
	Members []Member     `json:"members,omitempty"` // of etcd
	// Quorum reports whether etcd has its majority: a member sees a leader. Nil = no member answers.
	Quorum       *bool            `json:"quorum,omitempty"`
	Placement    *Placement       `json:"placement,omitempty"`
	Nodes        []NodeStatus     `json:"nodes"`
	Certificates []Certificate    `json:"certificates,omitempty"`
	Backup       *NewestBackup    `json:"backup,omitempty"`
	OffSite      *NewestBackup    `json:"offSite,omitempty"`
	Drift        []NodeDifference `json:"drift,omitempty"`
	// LocalVolumes are those that the request asks for; nil = not asked, or Kubernetes did not answer.
	LocalVolumes []LocalVolume `json:"localVolumes,omitempty"`
	// VolumesUnknown is why LocalVolumes are not known.
	VolumesUnknown string `json:"volumesUnknown,omitempty"`
}

// KubernetesAnswers reports whether the Kubernetes API listed its nodes.
func (s ClusterStatus) KubernetesAnswers() bool {
	return slices.ContainsFunc(s.Nodes, func(n NodeStatus) bool { return n.Ready != "" })
}

// Node returns the status of a node; the zero value if there is none.
func (s ClusterStatus) Node(name string) (n NodeStatus) {
	if i := slices.IndexFunc(s.Nodes, func(n NodeStatus) bool { return n.Name == name }); i >= 0 {
		return s.Nodes[i]
	}

	return n
}

// LocalVolume is a PersistentVolume with a claim, of the types local and hostPath.
type LocalVolume struct {
	Node  string `json:"node"`  // that it is on, or may be on
	Name  string `json:"name"`  // of the PersistentVolume
	Claim string `json:"claim"` // namespace/name
	Path  string `json:"path"`  // on the node
}

// Member is a member of etcd.
type Member struct {
	Name    string `json:"name"`
	Leader  bool   `json:"leader,omitempty"`
	Learner bool   `json:"learner,omitempty"`
	Healthy bool   `json:"healthy"` // it answers, and sees the leader
}

// NodeStatus is the status of a node; unknown fields are empty.
type NodeStatus struct {
	Name    string     `json:"name"`
	Address netip.Addr `json:"address"`
	Role    string     `json:"role"`
	// Answers reports whether its Talos API does, with a certificate of the cluster.
	Answers bool `json:"answers"`
	talos.NodeVersions

	// Ready is empty if no Kubernetes API answered, or the node is not registered.
	Ready string `json:"ready,omitempty"` // yes, no, or no CNI
	// ReadySince is when Ready changed last, by Kubernetes' clock.
	ReadySince time.Time `json:"readySince,omitzero"`
	Cordoned   bool      `json:"cordoned,omitempty"`
	GPUs       []Offer   `json:"gpus,omitempty"`
	// Staged reports whether another configuration takes effect at the next reboot.
	Staged bool `json:"staged,omitempty"`
	// AwaitsRestart reports whether parts of its configuration take effect only after a restart, which an interrupted run
	// left undone.
	AwaitsRestart bool `json:"awaitsRestart,omitempty"`
}

// Offer compares the GPUs that a node offers to pods with the planned number.
type Offer struct {
	Resource string `json:"resource"`
	Offered  int    `json:"offered"`
	Planned  int    `json:"planned"`
}

// NodeDifference describes how a node differs from the plan or the last applied configuration.
type NodeDifference struct {
	Node string `json:"node"`
	// Versions describes unplanned versions.
	Versions string `json:"versions,omitempty"`
	// Configuration are the paths in the machine configuration that differ from the last applied one.
	Configuration []string `json:"configuration,omitempty"`
	// Unknown describes why it could not be compared completely.
	Unknown string `json:"unknown,omitempty"`
	// Cluster is set if nodes of several clusters are compared.
	Cluster string `json:"cluster,omitempty"`
}

// Lines describes the differences, one per line.
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

// Certificate is a certificate and its expiry.
type Certificate struct {
	Of   string    `json:"of"`
	Ends time.Time `json:"ends"`
}

// NewestBackup is the newest snapshot of etcd.
type NewestBackup struct {
	Snapshot string    `json:"snapshot"` // path, or URL
	Taken    time.Time `json:"taken"`
	// Future is a snapshot whose time has not come yet; it does not count. Empty = none.
	Future string `json:"future,omitempty"`
}
