package vmdiff

import (
	"fmt"
	"slices"
	"strings"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/talos"
)

// CheckKubernetes reports clusters that cannot be upgraded from their running versions of Kubernetes (runs, by cluster)
// to the planned ones: Kubernetes is upgraded one minor version at a time, and Talos, which is upgraded first, must
// support the running Kubernetes. Clusters with unknown versions are skipped.
func CheckKubernetes(
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
			if refusal := spec.CheckKubernetesUpgrade(version, cluster.KubernetesVersion); refusal != "" {
				problems.Add(clusterPath(cluster)+".kubernetesVersion", cluster.KubernetesVersion, "%s", refusal)

				break
			}

			for _, n := range cluster.Nodes() {
				path, runs := keyPath(n.VM, "templates.version"), running[n.Name]
				if runs == "" || runs == n.Template.Version || problems.Has(path) {
					continue
				}

				if err := talos.CheckVersions(n.Template.Version, version); err != nil {
					problems.Add(path, n.Template.Version, "does not support the Kubernetes that cluster %s runs, and Talos is upgraded "+
						"first: %s; upgrade Kubernetes in a separate up before", cluster.Name, err)
				}
			}
		}
	}

	return problems
}

// KubernetesUpgrades returns a line for each cluster whose nodes run another version of Kubernetes (runs, by cluster)
// than is planned.
func KubernetesUpgrades(plan *spec.Plan, runs map[string][]string) (lines []string) {
	for _, cluster := range plan.Clusters {
		isPlanned := func(version string) bool { return version == cluster.KubernetesVersion }

		older := slices.DeleteFunc(slices.Sorted(slices.Values(runs[cluster.Name])), isPlanned)
		if len(older) == 0 || len(cluster.Nodes()) == 0 {
			continue
		}

		line := fmt.Sprintf("cluster %s%s%s → %s (%s.kubernetesVersion): the control planes' pods are replaced one node after the "+
			"other, then the kubelets; other pods keep running", cluster.Name, ofKubernetes,
			strings.Join(slices.Compact(older), ", "), cluster.KubernetesVersion, clusterPath(cluster))

		switch {
		case len(cluster.ControlPlanes) == 1:
			line += "; with one control plane, its API is unavailable for " + awayForUpgrade + " meanwhile"
		case cluster.VIP.IsValid():
			line += "; its API is unavailable for " + awayForUpgrade + " when the control plane with the virtual IP is upgraded"
		}

		lines = append(lines, line)
	}

	return lines
}
