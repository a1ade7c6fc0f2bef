package running

import (
	"fmt"
	"strings"

	"talos-proxmox/internal/spec"
)

// KeptCNIs refuses clusters whose CNI the last run installed and this one would leave to nobody.
func KeptCNIs(plan *spec.Plan, installed map[string]bool) (problems spec.Problems) {
	for _, cluster := range plan.Clusters {
		nodes := cluster.Nodes()
		if !installed[cluster.Name] || cluster.CNI != nil || len(nodes) == 0 {
			continue
		}

		problems = append(problems, spec.Problem{
			Path: nodes[0].Path[:strings.LastIndex(nodes[0].Path, ".")] + ".cni.kind", Value: `"none"`,
			Message: fmt.Sprintf("would leave Cilium, which brings the pods of cluster %s their network, to nobody; set cilium, "+
				"which leaves it alone where Flux has it, or take it out yourself (docs/platform.md)", cluster.Name),
		})
	}

	return problems
}
