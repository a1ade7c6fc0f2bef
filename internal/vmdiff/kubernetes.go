package vmdiff

import (
	"slices"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/talos"
)

// KubernetesSteps reports clusters that cannot come to their versions from the Kubernetes that they run, of which runs
// has the versions by cluster: Kubernetes goes one step at a time, and Talos, which is upgraded before it, has to run
// the Kubernetes that runs. Machines are those that run. Of a cluster that has told no version, nothing is said.
func KubernetesSteps(
	plan *spec.Plan, machines []Machine, runs map[string][]string,
) (problems problem.List) {
	running := map[string]string{} // Talos, by node
	for _, m := range machines {
		running[m.Name] = m.Talos
	}

	for _, cluster := range plan.Clusters {
		if len(cluster.Nodes()) == 0 {
			continue
		}

		for _, version := range slices.Sorted(slices.Values(runs[cluster.Name])) {
			if refusal := spec.KubernetesStep(version, cluster.KubernetesVersion); refusal != "" {
				problems.Add(clusterPath(cluster)+".kubernetesVersion", cluster.KubernetesVersion, "%s", refusal)

				break
			}

			for _, n := range cluster.Nodes() {
				path, runs := pathOf(n.VM, "templates.version"), running[n.Name]
				if runs == "" || runs == n.Template.Version || problems.Has(path) {
					continue
				}

				if err := talos.Check(n.Template.Version, version); err != nil {
					problems.Add(path, n.Template.Version, "does not run the Kubernetes that cluster %s runs, and Talos is upgraded "+
						"before it: %s; upgrade Kubernetes first, in an up of its own", cluster.Name, err)
				}
			}
		}
	}

	return problems
}
