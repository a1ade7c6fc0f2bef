package stacks

import (
	"fmt"
	"slices"
	"strings"

	"talos-proxmox/internal/spec"
)

// versions are what the last run that began to change a cluster planned for it. The change may have been cut off, so a
// run that plans other versions calls the upgrades again, also if the cluster was healthy with these versions before.
type versions struct {
	planned string // "Talos v1.14.4 9afa2bd…, Kubernetes v1.37.2"
	changes int    // how often the plan has changed
}

// parseVersions reads the versions of a record: "2: Talos …".
func parseVersions(text string) (v versions) {
	number, planned, _ := strings.Cut(text, ": ")
	_, _ = fmt.Sscan(number, &v.changes) // 0 without a number

	v.planned = planned

	return v
}

func (v versions) String() string { return fmt.Sprintf("%d: %s", v.changes, v.planned) }

// next returns the versions of a run that plans these for a cluster.
func (v versions) next(cluster spec.Cluster) versions {
	var talos []string

	for _, n := range cluster.Nodes() {
		if text := n.Template.Version + " " + n.Template.SchematicID(); !slices.Contains(talos, text) {
			talos = append(talos, text)
		}
	}

	slices.Sort(talos)

	planned := fmt.Sprintf("Talos %s, Kubernetes %s", strings.Join(talos, " and "), cluster.KubernetesVersion)
	if v.planned != "" && v.planned != planned {
		v.changes++
	}

	v.planned = planned

	return v
}
