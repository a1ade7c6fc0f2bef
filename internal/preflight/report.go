package preflight

import (
	"fmt"
	"slices"
	"strings"

	"talos-proxmox/internal/problem"
)

// Report formats findings for a terminal: those without a host, then host by host, errors first.
func Report(found problem.List) string {
	hosts := []string{""}
	for _, finding := range found {
		if !slices.Contains(hosts, finding.Heading) {
			hosts = append(hosts, finding.Heading)
		}
	}

	slices.Sort(hosts)

	var report strings.Builder

	for _, name := range hosts {
		if name != "" {
			report.WriteString("\n" + name + "\n")
		}

		for _, severity := range []problem.Severity{problem.Error, problem.Warning, problem.Fine} {
			for _, finding := range found {
				if finding.Heading == name && finding.Severity == severity {
					fmt.Fprintf(&report, "  %-8s %s\n", severity, finding)
				}
			}
		}
	}

	return report.String()
}
