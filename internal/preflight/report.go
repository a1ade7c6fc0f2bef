package preflight

import (
	"fmt"
	"slices"
	"strings"

	"talos-proxmox/internal/problem"
)

// Report is the judgement for a terminal: what is of no host in particular, then host by host, what is wrong first.
func Report(found problem.List) string {
	hosts := []string{""}
	for _, one := range found {
		if !slices.Contains(hosts, one.Of) {
			hosts = append(hosts, one.Of)
		}
	}

	slices.Sort(hosts)

	var report strings.Builder

	for _, name := range hosts {
		if name != "" {
			report.WriteString("\n" + name + "\n")
		}

		for _, severity := range []problem.Severity{problem.Error, problem.Warning, problem.Fine} {
			for _, one := range found {
				if one.Of == name && one.Severity == severity {
					fmt.Fprintf(&report, "  %-8s %s\n", severity, one)
				}
			}
		}
	}

	return report.String()
}
