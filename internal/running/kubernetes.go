package running

import (
	"fmt"
	"slices"
	"strings"

	"talos-proxmox/internal/spec"
)

// KubernetesSteps reports clusters that cannot come to their version of Kubernetes in one step from what they run, of
// which runs has the versions by cluster. Of a cluster that has told none, nothing is said.
func KubernetesSteps(plan *spec.Plan, runs map[string][]string) (problems spec.Problems) {
	for _, cluster := range plan.Clusters {
		nodes := cluster.Nodes()
		if len(nodes) == 0 {
			continue
		}

		for _, version := range slices.Sorted(slices.Values(runs[cluster.Name])) {
			problem := spec.KubernetesStep(version, cluster.KubernetesVersion)
			if problem == "" {
				continue
			}

			problems = append(problems, spec.Problem{
				Path:  nodes[0].Path[:strings.LastIndex(nodes[0].Path, ".")] + ".kubernetesVersion",
				Value: fmt.Sprintf("%q", cluster.KubernetesVersion), Message: problem,
			})

			break
		}
	}

	return problems
}
