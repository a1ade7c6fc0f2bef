package vmdiff

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/spec"
)

// Changed is a machine with what changes of it.
type Changed struct {
	Machine Machine // as it was
	Changes []Change
	// Pool is the path of the machine's pool in the stack file, where that is known.
	Pool string
	// At leads to a change's key in the stack file, where that is known.
	At func(key string) string
}

// Effect is the gravest of the changes.
func (c Changed) Effect() Effect {
	effect := Nothing
	for _, change := range c.Changes {
		effect = max(effect, change.Effect)
	}

	return effect
}

// Changes are what a plan changes of the machines that run, in the plan's order. The plan follows them where their
// disks are attached once it is judged.
func Changes(plan *spec.Plan, machines []Machine) []Changed {
	byName := map[string]Machine{}
	for _, m := range machines {
		byName[m.Name] = m
	}

	var all []Changed

	for _, m := range plan.Members() {
		old, runs := byName[m.Name]
		if !runs {
			continue
		}

		if !m.HostPinned && len(m.GPUs) == 0 {
			m.Host = old.Host // a calculated placement moves no machine
		}

		all = append(all, Changed{
			Machine: old,
			Pool:    m.Path,
			Changes: Compare(old, Wanted(m)),
			At:      func(key string) string { return pathOf(m.VM, key) },
		})
	}

	return all
}

// refuse reports what is impossible, for the first machine of a pool.
func (j *judgement) refuse(all []Changed) {
	for _, changed := range all {
		ofDisk := func(p problem.Problem) bool { return strings.HasPrefix(p.Path, changed.Pool+".extraDisks[") }
		if slices.ContainsFunc(j.problems, ofDisk) {
			continue // a disk that is set elsewhere than it is seems to be taken out
		}

		for _, change := range changed.Changes {
			if change.Effect == Impossible {
				j.add(problem.Problem{Path: changed.At(change.Key), Value: change.Value, Message: change.Why})
			}
		}
	}
}

// Describe says in a line each what happens to machines, those with the same changes together, and which clusters have
// no API meanwhile. What happens while a machine runs is not said: the plan shows it. Of clusters whose control planes
// are not counted, it says nothing.
func Describe(all []Changed, controlPlanes map[string]int) []string {
	var lines, texts []string

	together, away := map[string][]string{}, map[string][]Changed{}

	for _, c := range all {
		effect := c.Effect()
		if effect != Upgrade && effect != Restart && effect != Replace {
			continue
		}

		if c.Machine.ControlPlane && effect != Upgrade {
			away[c.Machine.Cluster] = append(away[c.Machine.Cluster], c)
		}

		text := c.text()
		if together[text] == nil {
			texts = append(texts, text)
		}

		together[text] = append(together[text], c.Machine.Name)
	}

	for _, text := range texts {
		one, many, _ := strings.Cut(text, "|")
		if len(together[text]) > 1 {
			one = many
		}

		lines = append(lines, Names(together[text])+" "+one)
	}

	for _, cluster := range slices.Sorted(maps.Keys(away)) {
		if line := awayLine(cluster, away[cluster], controlPlanes[cluster]); line != "" {
			lines = append(lines, line)
		}
	}

	return lines
}

// text is what happens, for one machine and for several.
func (c Changed) text() string {
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
		return fmt.Sprintf("is upgraded: %[1]s|are upgraded in turn: %[1]s", what)
	}

	return fmt.Sprintf("restarts: %[1]s|restart: %[1]s", what)
}

// awayLine says that a cluster's API is away; empty = enough of its control planes stay for etcd's majority. They
// restart one after the other, so that a single one lacks it.
func awayLine(cluster string, away []Changed, count int) string {
	replaced := slices.ContainsFunc(away, func(c Changed) bool { return c.Effect() == Replace })

	switch {
	case count == 0, replaced && count-len(away) > count/2:
		return ""
	case replaced:
		return fmt.Sprintf("%d of the %d control planes of cluster %s are replaced: without a majority of those that are there, its etcd is lost", len(away), count, cluster)
	case count == 1:
		return fmt.Sprintf(
			"cluster %s has one control plane: its API is unavailable while %s restarts", cluster, away[0].Machine.Name,
		)
	default:
		return ""
	}
}

// Names lists machines: those with consecutive numbers by the first and the last of them.
func Names(names []string) string {
	var parts []string

	for i := 0; i < len(names); {
		last := i
		for last+1 < len(names) && follows(names[last], names[last+1]) {
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

// follows says whether a name is another one with the next number.
func follows(name, next string) bool {
	i, j := strings.LastIndex(name, "-"), strings.LastIndex(next, "-")

	var a, b int

	if i < 0 || j < 0 || name[:i] != next[:j] {
		return false
	}

	_, errA := fmt.Sscan(name[i+1:], &a)
	_, errB := fmt.Sscan(next[j+1:], &b)

	return errA == nil && errB == nil && b == a+1
}
