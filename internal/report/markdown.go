package report

import (
	"fmt"
	"strings"

	"talos-proxmox/internal/spec"
)

// Markdown returns the stack's readme: clusters with their versions, a Mermaid picture of hosts and machines, the
// machines, the capacity of each host, and the next steps. Placement holds notes on the machines' hosts.
func Markdown(p *spec.Plan, placement []string) string {
	v := newView(p)
	w := &writer{}
	w.line("# Stack %s", v.Stack)
	w.clusters(v)
	w.topology(v)
	w.machines(v)
	w.list("Placement", placement)
	w.capacity(v)
	w.gpus(v)
	w.list("Warnings", v.Warnings)
	w.nextSteps(v)

	return w.text.String()
}

// Capacity returns only the table of each host's capacity.
func Capacity(p *spec.Plan) string {
	w := &writer{}
	w.capacityTable(newView(p))

	return strings.TrimPrefix(w.text.String(), "\n")
}

type writer struct{ text strings.Builder }

func (w *writer) line(format string, values ...any) {
	fmt.Fprintf(&w.text, format+"\n", values...)
}

// table writes a header row and the rows, with escaped cells.
func (w *writer) table(head []string, rows [][]string) {
	w.line("")
	w.row(head)
	w.line("|%s", strings.Repeat("---|", len(head)))

	for _, row := range rows {
		w.row(row)
	}
}

func (w *writer) row(cells []string) {
	for _, cell := range cells {
		w.text.WriteString("| " + strings.NewReplacer("|", `\|`, "\n", " ").Replace(cell) + " ")
	}

	w.line("|")
}

func (w *writer) list(heading string, entries []string) {
	if len(entries) == 0 {
		return
	}

	w.line("\n## %s\n", heading)

	for _, entry := range entries {
		w.line("- %s", entry)
	}
}

func (w *writer) clusters(v view) {
	rows := make([][]string, 0, len(v.Clusters))
	for _, c := range v.Clusters {
		rows = append(
			rows,
			[]string{
				c.Name, fmt.Sprintf("%d + %d", c.ControlPlanes, c.Workers), c.Talos, c.Kubernetes, c.Fixes, c.Endpoint, c.CIDR,
			},
		)
	}

	w.table([]string{"cluster", "control planes + workers", "Talos", "Kubernetes", "fixes until", "API", "network"}, rows)

	for _, c := range v.Clusters {
		if c.Settings != "" {
			w.line("\n%s: %s.", c.Name, c.Settings)
		}
	}

	if v.Protect {
		w.line("\nControl planes, Talos secrets and the bootstrap are protected against deletion.")
	}

	if len(v.Egress) > 0 {
		w.line("\nBeyond its own networks it reaches only %s.", strings.Join(v.Egress, ", "))
	}
}

// topology draws hosts as boxes that contain their machines, and each virtual IP above its control planes.
func (w *writer) topology(v view) {
	w.line("\n## Topology\n\n```mermaid\nflowchart TB")

	for i, c := range v.Clusters {
		if c.VIP != "" {
			w.line("  vip%d([\"%s API<br/>%s\"])", i, c.Name, c.VIP)
		}
	}

	for i, h := range v.Hosts {
		w.line("  subgraph host%d[\"%s · %s\"]", i, h.Name, h.Address)

		for _, m := range h.Machines {
			label := fmt.Sprintf("%s<br/>%s · %s", m.Name, m.Kind, m.Address)
			if len(m.GPUs) > 0 {
				label += "<br/>" + strings.Join(m.GPUs, ", ")
			}

			w.line("    vm%d[\"%s\"]", m.VMID, label)
		}

		w.line("  end")
	}

	for i, c := range v.Clusters {
		for _, m := range v.Machines {
			if c.VIP != "" && m.Cluster == c.Name && m.Kind == kindControlPlane {
				w.line("  vip%d --- vm%d", i, m.VMID)
			}
		}
	}

	w.line("```")
}

func (w *writer) machines(v view) {
	w.line("\n## Machines")

	rows := make([][]string, 0, len(v.Machines))
	for _, m := range v.Machines {
		kind := m.Kind
		if len(m.GPUs) > 0 {
			kind += " (" + strings.Join(m.GPUs, ", ") + ")"
		}

		rows = append(rows, []string{
			m.Name, kind, m.Host, fmt.Sprint(m.VMID), m.Address, m.MAC, fmt.Sprint(m.Cores), m.MemoryGiB() + " GiB",
			fmt.Sprintf("%d GiB", m.DiskGiB), m.System,
		})
	}

	w.table([]string{"machine", "kind", "host", "VMID", "address", "MAC", "cores", "memory", "disks", "system"}, rows)
}

func (w *writer) capacity(v view) {
	w.line(
		"\n## Capacity\n\nWhat machines take of each host; “of” is what the stack says guests may use (`hosts[].capacity`).",
	)
	w.capacityTable(v)
}

func (w *writer) capacityTable(v view) {
	rows := make([][]string, 0, len(v.Hosts))
	for _, h := range v.Hosts {
		disks := make([]string, 0, len(h.Disks))
		for _, d := range h.Disks {
			disks = append(disks, fmt.Sprintf("%s %d", d.Datastore, d.GiB))
		}

		rows = append(
			rows, []string{h.Name, fmt.Sprint(len(h.Machines)), h.Cores.String(), h.Memory.String(), strings.Join(disks, ", ")},
		)
	}

	w.table([]string{"host", "machines", "cores", "memory, GiB", "disks, GiB"}, rows)
}

func (w *writer) gpus(v view) {
	var rows [][]string

	for _, h := range v.Hosts {
		for _, g := range h.GPUs {
			user := g.Machine
			if user == "" {
				user = "free"
			}

			rows = append(rows, []string{h.Name, g.Name, g.PCI, g.Generation, user})
		}
	}

	if len(rows) == 0 {
		return
	}

	w.line("\n## GPUs")
	w.table([]string{"host", "GPU", "PCI address", "generation", "machine"}, rows)
}

func (w *writer) nextSteps(v view) {
	w.line("\n## Next steps\n\n```shell\n%s\n```", strings.Join(v.NextSteps(), "\n"))
}
