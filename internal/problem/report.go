package problem

import (
	"fmt"
	"slices"
	"strings"
)

// Report formats findings for a terminal: those without a heading, then heading by heading, the most severe first. The
// lines about a heading precede its findings.
func Report(found List, about map[string][]string) string {
	headings := []string{""}
	for heading := range about {
		headings = append(headings, heading)
	}

	for _, p := range found {
		headings = append(headings, p.Heading)
	}

	slices.Sort(headings)

	var report strings.Builder

	for _, heading := range slices.Compact(headings) {
		if heading != "" {
			report.WriteString("\n" + heading + "\n")
		}

		for _, line := range about[heading] {
			fmt.Fprintf(&report, "  %s\n", line)
		}

		for severity := Error; severity <= Fine; severity++ {
			for _, p := range found {
				if p.Heading == heading && p.Severity == severity {
					fmt.Fprintf(&report, "  %-8s %s\n", severity, p)
				}
			}
		}
	}

	return report.String()
}
