package request

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"talos-proxmox/internal/terminal"
)

// shortSchematic is how many characters of a schematic's id distinguish it.
const shortSchematic = 12

// Heading says in one line how the cluster is.
func (s ClusterStatus) Heading() string {
	switch s.Status {
	case StatusOK:
		return "Cluster " + s.Cluster + " is healthy."
	case StatusUnknown:
		return "Cluster " + s.Cluster + " does not answer:"
	default:
		return "Cluster " + s.Cluster + " needs care:"
	}
}

// optionalColumns are those that narrow tables go without, in this order.
var optionalColumns = []string{"SCHEMATIC", "API SERVER", "KUBELET", "ROLE"}

// Table formats the state of a cluster for people: its heading, what needs care, a table of nodes, certificates and
// snapshots. In a width, long lines are wrapped, and the table has less; 0 = any.
func (s ClusterStatus) Table(width int) string {
	var b strings.Builder

	b.WriteString(s.Heading() + "\n")

	for _, line := range s.Care.Lines() {
		b.WriteString(terminal.Wrap(line, "  ", width))
	}

	b.WriteString("\n")

	rows := [][]string{{"NODE", "ROLE", "TALOS", "SCHEMATIC", "KUBELET", "API SERVER", "ETCD", "READY", "GPUS"}}
	for _, n := range s.Nodes {
		rows = append(rows, []string{
			n.Name, n.Role, n.Talos, n.Schematic[:min(len(n.Schematic), shortSchematic)], n.Kubelet, n.APIServer,
			s.EtcdRole(n.Name), n.Readiness(), gpuColumn(n.GPUs),
		})
	}

	if s.Placement != nil {
		rows[0] = append(rows[0], "HOST")
		for i, n := range s.Nodes {
			rows[i+1] = append(rows[i+1], s.Placement.Of(n.Name).Location())
		}
	}

	b.WriteString(terminal.Table(rows, width, optionalColumns...))

	if s.Placement != nil {
		for _, what := range s.Placement.NotAsked {
			b.WriteString(terminal.Wrap("Not asked: "+what, "", width))
		}
	}

	if rows := s.certificateRows(); len(rows) > 1 {
		b.WriteString("\n" + terminal.Table(rows, width))
	}

	for _, line := range s.SnapshotLines() {
		b.WriteString("\n" + terminal.Wrap(line, "", width))
	}

	return b.String()
}

// SnapshotLines describe the newest snapshots of etcd.
func (s ClusterStatus) SnapshotLines() (lines []string) {
	for _, one := range []struct {
		where  string
		newest *NewestBackup
	}{{"of etcd", s.Backup}, {"off-site", s.OffSite}} {
		if one.newest != nil {
			lines = append(lines, fmt.Sprintf("Newest snapshot %s: %s, %s ago", one.where, one.newest.Snapshot,
				FormatDuration(s.Asked.Sub(one.newest.Taken))))
		}
	}

	return lines
}

// FirstCertificates returns of each kind of certificate the one that ends first.
func (s ClusterStatus) FirstCertificates() (first []Certificate) {
	var kinds []string

	for _, c := range s.Certificates {
		kind := c.Of
		for _, n := range s.Nodes {
			kind = strings.TrimPrefix(kind, n.Name+" ")
		}

		if !slices.Contains(kinds, kind) {
			kinds, first = append(kinds, kind), append(first, c)
		}
	}

	return first
}

func (s ClusterStatus) certificateRows() [][]string {
	rows := [][]string{{"CERTIFICATE", "ENDS", "IN"}}
	for _, c := range s.FirstCertificates() {
		rows = append(rows, []string{c.Of, c.Ends.Format(time.DateOnly), FormatDuration(c.Ends.Sub(s.Asked))})
	}

	return rows
}

// EtcdRole returns what a node is in etcd: leader, member or learner; empty if it is no member.
func (s ClusterStatus) EtcdRole(node string) string {
	i := slices.IndexFunc(s.Members, func(m Member) bool { return m.Name == node })

	switch {
	case i < 0:
		return ""
	case s.Members[i].Leader:
		return "leader"
	case s.Members[i].Learner:
		return "learner"
	default:
		return "member"
	}
}

// Readiness returns whether the node is Ready, and cordoned.
func (n NodeStatus) Readiness() string {
	if n.Cordoned {
		return n.Ready + ", cordoned"
	}

	return n.Ready
}

// String compares the numbers: 1/2 nvidia.com/gpu.
func (o Offer) String() string { return fmt.Sprintf("%d/%d %s", o.Offered, o.Planned, o.Resource) }

func gpuColumn(offers []Offer) string {
	words := make([]string, 0, len(offers))
	for _, o := range offers {
		words = append(words, o.String())
	}

	return strings.Join(words, ", ")
}

// Location returns where the machine is: its host, and what is unusual about it.
func (m PlacedMachine) Location() string {
	if m.VMID != 0 && m.Host == "" {
		return "none"
	}

	var notes []string

	if m.HostStatus != "" && m.HostStatus != HostOnline {
		notes = append(notes, m.HostStatus)
	}

	if m.PlannedHost != "" {
		notes = append(notes, "planned "+m.PlannedHost)
	}

	if m.HA != "" {
		notes = append(notes, "HA "+m.HA)
	}

	if len(notes) == 0 {
		return m.Host
	}

	return m.Host + " (" + strings.Join(notes, ", ") + ")"
}

// FormatDuration formats a duration in days, hours or minutes.
func FormatDuration(d time.Duration) string {
	const day = 24 * time.Hour

	switch {
	case d <= 0:
		return "no time"
	case d < time.Hour:
		return fmt.Sprintf("%d minutes", int(d.Minutes()))
	case d < 2*day:
		return fmt.Sprintf("%d hours", int(d.Hours()))
	default:
		return fmt.Sprintf("%d days", int(d/day))
	}
}
