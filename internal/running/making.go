package running

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"proxmox-talos/internal/spec"
)

// Making is how a plan makes new machines, by the key of the stack file that says so and machines that run do not
// follow; for each pool, and without indexes, which change when others come and go.
func Making(plan *spec.Plan) map[string]string {
	making := map[string]string{}
	for _, cluster := range plan.Clusters {
		for _, n := range cluster.Nodes() {
			pool := n.Cluster + "-" + n.Pool
			making[pool+" clone"] = map[bool]string{true: "linked", false: "full"}[n.Linked]
			making[pool+" template"] = n.Template.Key
			making[pool+" templates.version"] = n.Template.Version
		}
	}

	return making
}

// remedies say how a machine that runs gets what only new ones get.
var remedies = map[string]string{
	"clone":             "a worker is made anew where count goes down and up again",
	"template":          "a worker is made anew where count goes down and up again",
	"templates.version": "upgrade it with talosctl (docs/upgrades.md)",
}

// Unfollowed says which changes since the last run do nothing to the machines that it left, and what would. Of what the
// last run did not record nothing is said.
func Unfollowed(plan *spec.Plan, last map[string]string, machines []Machine) []string {
	runs := map[string]bool{}
	for _, m := range machines {
		runs[m.Name] = true
	}
	concerned := map[string][]string{} // machines by what is said
	making := Making(plan)
	for _, cluster := range plan.Clusters {
		for _, n := range cluster.Nodes() {
			for _, key := range slices.Sorted(maps.Keys(remedies)) {
				at := n.Cluster + "-" + n.Pool + " " + key
				was, is := last[at], making[at]
				if !runs[n.Name] || was == "" || was == is {
					continue
				}
				text := fmt.Sprintf("%s: %s → %s does nothing to machines that run (%%s): only new ones are made so; %s", pathOf(n, key), was, is, remedies[key])
				concerned[text] = append(concerned[text], n.Name)
			}
		}
	}
	var lines []string
	for _, text := range slices.Sorted(maps.Keys(concerned)) {
		lines = append(lines, strings.Replace(text, "%s", Names(concerned[text]), 1))
	}

	return lines
}
