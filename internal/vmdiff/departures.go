package vmdiff

import (
	"fmt"
	"slices"
	"strings"

	"talos-proxmox/internal/spec"
)

// checkDepartures describes which plain machines are deleted and which nodes leave their clusters, and reports control
// planes that could not leave. Nodes of a deleted cluster do not leave it.
func (j *checker) checkDepartures() []string {
	var lines []string

	var deleted []string

	for _, m := range j.machines {
		if _, stays := j.planned[m.Name]; !stays && m.Cluster == "" {
			deleted = append(deleted, m.Name)
		}
	}

	switch len(deleted) {
	case 0:
	case 1:
		lines = append(lines, deleted[0]+" is deleted, with its data")
	default:
		lines = append(lines, JoinNames(deleted)+" are deleted, with their data")
	}

	for _, cluster := range j.plan.Clusters {
		var (
			workers, controlPlanes []string
			unable                 []Machine
		)

		for _, m := range j.machines {
			if _, stays := j.planned[m.Name]; stays || m.Cluster != cluster.Name {
				continue
			}

			switch {
			case m.Departed:
				lines = append(lines, m.Name+HasDeparted+cluster.Name+" before: its VM is deleted, with its data")
			case m.ControlPlane && m.CannotLeave != "":
				unable = append(unable, m)
			case m.ControlPlane:
				controlPlanes = append(controlPlanes, m.Name)
			default:
				workers = append(workers, m.Name)
			}
		}

		lines = append(lines, leaveLines(cluster.Name+" and its etcd", controlPlanes)...)
		lines = append(lines, leaveLines(cluster.Name, workers)...)

		if len(unable) > 0 {
			j.reportUnableToLeave(cluster, unable)
		}
	}

	return append(lines, j.volumeLines()...)
}

// volumeLines says which volumes outlive the machines that are deleted or replaced.
func (j *checker) volumeLines() (lines []string) {
	for _, m := range Removed(j.plan, j.machines) {
		volumes := strings.Join(m.volumes(), ", ")
		if _, stays := j.planned[m.Name]; volumes != "" && stays {
			lines = append(lines, fmt.Sprintf("the next %s gets the volumes of this one: %s", m.Name, volumes))
		} else if volumes != "" {
			lines = append(lines, fmt.Sprintf("the volumes of %s stay, with their data: %s "+
				"(docs/machines.md#volumes-that-outlive-machines)", m.Name, volumes))
		}
	}

	return lines
}

func leaveLines(cluster string, names []string) []string {
	switch len(names) {
	case 0:
		return nil
	case 1:
		return []string{fmt.Sprintf("%s leaves cluster %s: it is drained, wiped, and deleted with its data", names[0], cluster)}
	default:
		return []string{fmt.Sprintf("%s leave cluster %s, one after the other: they are drained, wiped, and deleted with their data",
			JoinNames(names), cluster)}
	}
}

// reportUnableToLeave reports control planes that could not leave etcd.
func (j *checker) reportUnableToLeave(cluster spec.Cluster, machines []Machine) {
	path := cluster.ControlPlanes[0].Path
	count := len(cluster.ControlPlanes)

	var names, reasons []string
	for _, m := range machines {
		names, reasons = append(names, m.Name), append(reasons, m.Name+": "+m.CannotLeave)
	}

	j.reportf(
		path+".count", count, "removes %s, and nothing would make them leave etcd: the last run used an earlier version of "+
			"this program, or did not get that far (%s). Run `up` once with %d, then use %d; one that is no member of etcd, not "+
			"registered, and off or gone, may be removed at once",
		strings.Join(names, ", "), strings.Join(reasons, "; "), count+len(machines), count,
	)
}

// Parts of warnings that follow the name of a machine; planguard reads them.
const (
	// HasDeparted is followed by the name of a cluster that the machine has left already.
	HasDeparted = " has left cluster "
	// OnlyCopy is followed by the name of a cluster whose etcd data no other machine has.
	OnlyCopy = " has the only copy of the etcd data of cluster "
	// LostVolumesText is followed by the volumes that the machine's deletion takes beyond its own disks.
	LostVolumesText = " is deleted with volumes that the stack file does not name: "
)

// Removed returns the machines that a plan deletes or replaces.
func Removed(plan *spec.Plan, machines []Machine) []Machine {
	planned := map[string]bool{}
	for _, m := range plan.Members() {
		planned[m.Name] = true
	}

	removed := slices.DeleteFunc(slices.Clone(machines), func(m Machine) bool { return planned[m.Name] })

	for _, changed := range Changes(plan, machines) {
		if changed.Effect() == Replace {
			removed = append(removed, changed.Machine)
		}
	}

	return removed
}
