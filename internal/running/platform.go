package running

import (
	"fmt"
	"strings"

	"talos-proxmox/internal/spec"
)

// KeptCNIs refuses clusters whose CNI the last run installed and this one would leave to nobody.
func KeptCNIs(plan *spec.Plan, installed map[string]bool) (problems spec.Problems) {
	for _, cluster := range plan.Clusters {
		if !installed[cluster.Name] || cluster.CNI != nil || len(cluster.Nodes()) == 0 {
			continue
		}

		problems = append(problems, spec.Problem{
			Path: clusterPath(cluster) + ".cni.kind", Value: `"none"`,
			Message: fmt.Sprintf("would leave Cilium, which brings the pods of cluster %s their network, to nobody; set cilium, "+
				"which leaves it alone where Flux has it, or take it out yourself (docs/platform.md)", cluster.Name),
		})
	}

	return problems
}

// LeftFlux warns of clusters that the last run brought Flux to and this one does not: it stays and keeps reconciling.
func LeftFlux(plan *spec.Plan, brought map[string]bool) (warnings []string) {
	for _, cluster := range plan.Clusters {
		if !brought[cluster.Name] || cluster.GitOps != nil || len(cluster.Nodes()) == 0 {
			continue
		}

		warnings = append(warnings, fmt.Sprintf("%s.gitops: is not set any more: Flux and all that it made stay in cluster %s, and "+
			"it keeps reconciling what it was told last; docs/platform.md says how to take it out", clusterPath(cluster), cluster.Name))
	}

	return warnings
}

// clusterPath leads to a cluster with nodes in the configuration: clusters[0].
func clusterPath(cluster spec.Cluster) string {
	first := cluster.Nodes()[0].Path

	return first[:strings.LastIndex(first, ".")]
}
