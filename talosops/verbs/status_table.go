package verbs

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"talos-proxmox/internal/request"
)

// shortSchematic is how many characters of a schematic's id distinguish it.
const shortSchematic = 12

// statusTable formats the state of a cluster for people.
func statusTable(s request.ClusterStatus) string {
	var b strings.Builder

	switch s.Status {
	case request.StatusOK:
		fmt.Fprintf(&b, "Cluster %s is healthy.\n", s.Cluster)
	case request.StatusUnknown:
		fmt.Fprintf(&b, "Cluster %s does not answer:\n", s.Cluster)
	default:
		fmt.Fprintf(&b, "Cluster %s needs care:\n", s.Cluster)
	}

	for _, line := range s.Care.Lines() {
		b.WriteString("  " + line + "\n")
	}

	b.WriteString("\n")

	rows := [][]string{{"NODE", "ROLE", "TALOS", "SCHEMATIC", "KUBELET", "API SERVER", "ETCD", "READY", "GPUS"}}
	for _, n := range s.Nodes {
		rows = append(rows, []string{
			n.Name, n.Role, n.Talos, n.Schematic[:min(len(n.Schematic), shortSchematic)], n.Kubelet, n.APIServer,
			etcdColumn(s.Members, n.Name), readyColumn(n), gpuColumn(n.GPUs),
		})
	}

	if s.Placement != nil {
		rows[0] = append(rows[0], "HOST")
		for i, n := range s.Nodes {
			rows[i+1] = append(rows[i+1], hostColumn(s.Placement.Of(n.Name)))
		}
	}

	writeRows(&b, rows)

	if s.Placement != nil {
		for _, what := range s.Placement.NotAsked {
			fmt.Fprintf(&b, "Not asked: %s\n", what)
		}
	}

	writeCertificates(&b, s)

	if s.Backup != nil {
		age := formatDuration(s.Asked.Sub(s.Backup.Taken))
		fmt.Fprintf(&b, "\nNewest snapshot of etcd: %s, %s ago\n", s.Backup.Snapshot, age)
	}

	if s.OffSite != nil {
		age := formatDuration(s.Asked.Sub(s.OffSite.Taken))
		fmt.Fprintf(&b, "\nNewest snapshot off-site: %s, %s ago\n", s.OffSite.Snapshot, age)
	}

	return b.String()
}

// writeCertificates writes one row for each kind of certificate, the one that ends first.
func writeCertificates(b *strings.Builder, s request.ClusterStatus) {
	var kinds []string

	rows := [][]string{{"CERTIFICATE", "ENDS", "IN"}}

	for _, c := range s.Certificates {
		kind := c.Of
		for _, n := range s.Nodes {
			kind = strings.TrimPrefix(kind, n.Name+" ")
		}

		if slices.Contains(kinds, kind) {
			continue
		}

		kinds = append(kinds, kind)
		rows = append(rows, []string{c.Of, c.Ends.Format(time.DateOnly), formatDuration(c.Ends.Sub(s.Asked))})
	}

	if len(rows) > 1 {
		b.WriteString("\n")
		writeRows(b, rows)
	}
}

func writeRows(b *strings.Builder, rows [][]string) {
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)

	for _, row := range rows {
		for i := range row {
			row[i] = cmp.Or(row[i], "-")
		}

		_, _ = fmt.Fprintln(w, strings.Join(row, "\t")) // writes to memory do not fail
	}

	_ = w.Flush()
}

func etcdColumn(members []request.Member, name string) string {
	i := slices.IndexFunc(members, func(m request.Member) bool { return m.Name == name })

	switch {
	case i < 0:
		return ""
	case members[i].Leader:
		return "leader"
	case members[i].Learner:
		return "learner"
	default:
		return "member"
	}
}

func readyColumn(n request.NodeStatus) string {
	if n.Cordoned {
		return n.Ready + ", cordoned"
	}

	return n.Ready
}

func gpuColumn(offers []request.Offer) string {
	words := make([]string, 0, len(offers))
	for _, o := range offers {
		words = append(words, fmt.Sprintf("%d/%d %s", o.Offered, o.Planned, o.Resource))
	}

	return strings.Join(words, ", ")
}

// formatDuration formats a duration in days, hours or minutes.
func formatDuration(d time.Duration) string {
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
