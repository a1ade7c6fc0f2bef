package vmdiff

import (
	"fmt"
	"strings"

	"talos-proxmox/internal/spec"
)

// departures says which machines go and which leave their clusters, and reports control planes that nothing would have
// leave. Where a whole cluster goes, nothing leaves it.
func (j *judgement) departures() []string {
	var lines []string

	var gone []string

	for _, m := range j.machines {
		if _, stays := j.planned[m.Name]; !stays && m.Cluster == "" {
			gone = append(gone, m.Name)
		}
	}

	switch len(gone) {
	case 0:
	case 1:
		lines = append(lines, gone[0]+" is deleted, with its data")
	default:
		lines = append(lines, Names(gone)+" are deleted, with their data")
	}

	for _, cluster := range j.plan.Clusters {
		var workers, controlPlanes, bound []string

		for _, m := range j.machines {
			if _, stays := j.planned[m.Name]; stays || m.Cluster != cluster.Name {
				continue
			}

			switch {
			case m.ControlPlane && m.Bound:
				bound = append(bound, m.Name)
			case m.ControlPlane:
				controlPlanes = append(controlPlanes, m.Name)
			default:
				workers = append(workers, m.Name)
			}
		}

		lines = append(lines, leaving(cluster.Name+" and its etcd", controlPlanes)...)
		lines = append(lines, leaving(cluster.Name, workers)...)

		if len(bound) > 0 {
			j.bound(cluster, bound)
		}
	}

	return lines
}

func leaving(cluster string, names []string) []string {
	switch len(names) {
	case 0:
		return nil
	case 1:
		return []string{fmt.Sprintf("%s leaves cluster %s: it is drained, wiped, and deleted with its data", names[0], cluster)}
	default:
		return []string{fmt.Sprintf("%s leave cluster %s, one after the other: they are drained, wiped, and deleted with their data",
			Names(names), cluster)}
	}
}

// bound reports control planes that are in the state without the command by which they leave.
func (j *judgement) bound(cluster spec.Cluster, names []string) {
	path := cluster.ControlPlanes[0].Path
	count := len(cluster.ControlPlanes)

	j.report(
		path+".count", count, "takes out %s, and nothing would have them leave etcd: the last run was one of an "+
			"earlier version of this program, or did not get to it; run `up` once with %d, then use %d",
		strings.Join(names, ", "), count+len(names), count,
	)
}
