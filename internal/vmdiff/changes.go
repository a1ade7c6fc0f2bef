package vmdiff

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/spec"
)

// MachineChanges is a running machine with its changes.
type MachineChanges struct {
	Machine Machine // before the changes
	Changes []Change
	// Pool is the path of the machine's pool in the stack file; empty = unknown.
	Pool string
	// At returns the path of a change's key in the stack file; nil = unknown.
	At func(key string) string
}

// Effect returns the most severe effect of the changes.
func (c MachineChanges) Effect() Effect {
	effect := Nothing
	for _, change := range c.Changes {
		effect = max(effect, change.Effect)
	}

	return effect
}

// Changes returns the changes of running machines, in the plan's order. Call [Check] first: it sets the interfaces of
// attached disks in the plan.
func Changes(plan *spec.Plan, machines []Machine) []MachineChanges {
	byName := map[string]Machine{}
	for _, m := range machines {
		byName[m.Name] = m
	}

	var all []MachineChanges

	for _, m := range plan.Members() {
		old, runs := byName[m.Name]
		if !runs {
			continue
		}

		if !m.HostPinned && len(m.AllDevices()) == 0 {
			m.Host = old.Host // automatic placement moves no machine
		}

		all = append(all, MachineChanges{
			Machine: old,
			Pool:    m.Path,
			Changes: Compare(old, FromPlan(m)),
			At:      func(key string) string { return keyPath(m.VM, key) },
		})
	}

	return all
}

// reportImpossible reports impossible changes, once per pool.
func (j *checker) reportImpossible(all []MachineChanges) {
	for _, changed := range all {
		isDiskProblem := func(p problem.Problem) bool { return strings.HasPrefix(p.Path, changed.Pool+".extraDisks[") }
		if slices.ContainsFunc(j.problems, isDiskProblem) {
			continue // a disk with another interface looks like a removed one
		}

		for _, change := range changed.Changes {
			if change.Effect == Impossible {
				j.add(problem.Problem{Path: changed.At(change.Key), Value: change.Value, Message: change.Why})
			}
		}
	}
}

// Describe returns a line for each group of machines with the same changes, and for each cluster whose API becomes
// unavailable, by [APIs]. It omits changes in place, which the preview shows. Restarting are control planes by cluster
// that restart for another reason; nil = none.
func Describe(all []MachineChanges, apis map[string]API, restarting map[string][]string) []string {
	var lines, texts []string

	machinesByText, replaced := map[string][]string{}, map[string]int{}

	away := map[string][]string{}
	for cluster, names := range restarting {
		away[cluster] = slices.Clone(names)
	}

	for _, c := range all {
		effect := c.Effect()
		if effect != Upgrade && effect != Restart && effect != Replace {
			continue
		}

		switch cluster := c.Machine.Cluster; {
		case c.Machine.ControlPlane && effect == Replace:
			replaced[cluster]++
		case c.Machine.ControlPlane:
			away[cluster] = append(away[cluster], c.Machine.Name)
		}

		text := c.description()
		if machinesByText[text] == nil {
			texts = append(texts, text)
		}

		machinesByText[text] = append(machinesByText[text], c.Machine.Name)
	}

	for _, text := range texts {
		singular, plural, _ := strings.Cut(text, "|")
		if len(machinesByText[text]) > 1 {
			singular = plural
		}

		lines = append(lines, JoinNames(machinesByText[text])+" "+singular)
	}

	for _, cluster := range slices.Sorted(maps.Keys(apis)) {
		if line := outageLine(cluster, apis[cluster], replaced[cluster], away[cluster]); line != "" {
			lines = append(lines, line)
		}
	}

	return lines
}

// Parts of lines about upgrades.
const (
	upgraded       = "is upgraded: "
	upgradedInTurn = "are upgraded in turn: "
	ofKubernetes   = ": Kubernetes "
)

// IsUpgrade reports whether a line is about an upgrade of Talos or Kubernetes: one of [Describe] or
// [KubernetesUpgrades].
func IsUpgrade(line string) bool {
	return strings.Contains(line, upgraded) || strings.Contains(line, upgradedInTurn) ||
		strings.Contains(line, ofKubernetes) && strings.Contains(line, " → ")
}

// description returns the text for one machine and for several, separated by a vertical bar.
func (c MachineChanges) description() string {
	effect := c.Effect()

	var parts []string

	for _, change := range c.Changes {
		if effect == Replace && change.Effect != Replace || effect == Upgrade && change.Effect != Upgrade {
			continue
		}

		part := change.What
		if c.At != nil && change.Key != "" {
			part += " (" + c.At(change.Key) + ")"
		}

		parts = append(parts, part)
	}

	what := strings.Join(parts, "; ")
	if effect == Replace {
		return fmt.Sprintf("is replaced, with its data: %[1]s|are replaced, with their data: %[1]s", what)
	}

	if effect == Upgrade {
		return fmt.Sprintf("%s%s|%s%[2]s", upgraded, what, upgradedInTurn)
	}

	return fmt.Sprintf("restarts: %[1]s|restart: %[1]s", what)
}

// outageLine describes the outage of a cluster's API, or the loss of its etcd; empty = neither.
func outageLine(cluster string, api API, replaced int, restarting []string) string {
	if replaced > 0 && api.ControlPlanes-replaced <= api.ControlPlanes/2 {
		return fmt.Sprintf("%d of the %d control planes of cluster %s are replaced: its etcd is lost unless a majority of the existing "+
			"ones stays", replaced, api.ControlPlanes, cluster)
	}

	slices.SortFunc(restarting, problem.CompareNatural)

	return api.Outage(cluster, slices.Compact(restarting))
}

// JoinNames joins names of machines, and shortens consecutive numbers to the first and the last.
func JoinNames(names []string) string {
	var parts []string

	for i := 0; i < len(names); {
		last := i
		for last+1 < len(names) && isNext(names[last], names[last+1]) {
			last++
		}

		if last-i >= 2 {
			parts = append(parts, names[i]+" … "+names[last])
		} else {
			parts = append(parts, names[i:last+1]...)
		}

		i = last + 1
	}

	return strings.Join(parts, ", ")
}

// isNext reports whether next is name with the next number.
func isNext(name, next string) bool {
	i, j := strings.LastIndex(name, "-"), strings.LastIndex(next, "-")

	var a, b int

	if i < 0 || j < 0 || name[:i] != next[:j] {
		return false
	}

	_, errA := fmt.Sscan(name[i+1:], &a)
	_, errB := fmt.Sscan(next[j+1:], &b)

	return errA == nil && errB == nil && b == a+1
}
