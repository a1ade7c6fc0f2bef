package site

import (
	"fmt"
	"slices"
	"strings"
)

// Report is the judgement for a terminal: what is of no host in particular, then host by host, what is wrong first.
func (f Findings) Report() string {
	hosts := []string{""}
	for _, one := range f {
		if !slices.Contains(hosts, one.Host) {
			hosts = append(hosts, one.Host)
		}
	}

	slices.Sort(hosts)

	var report strings.Builder

	for _, name := range hosts {
		if name != "" {
			report.WriteString("\n" + name + "\n")
		}

		for _, kind := range []Kind{Problem, Warning, Fine} {
			for _, one := range f {
				if one.Host == name && one.Kind == kind {
					fmt.Fprintf(&report, "  %-8s %s\n", kind, one)
				}
			}
		}
	}

	return report.String()
}

// String is the word that a report has for it.
func (k Kind) String() string { return [...]string{"ok", "warning", "PROBLEM"}[k] }
