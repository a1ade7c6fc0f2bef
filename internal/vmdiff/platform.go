package vmdiff

import (
	"fmt"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/spec"
)

// CheckCNIs reports clusters whose CNI the last run installed and this plan no longer has.
func CheckCNIs(plan *spec.Plan, installed func(cluster string) bool) (problems problem.List) {
	for _, cluster := range plan.Clusters {
		if !installed(cluster.Name) || cluster.CNI != nil || len(cluster.Nodes()) == 0 {
			continue
		}

		problems.Add(clusterPath(cluster)+".cni.kind", "none",
			"would leave Cilium, the pod network of cluster %s, unmanaged; set cilium, which does not touch a release that "+
				"Flux manages, or remove it yourself (docs/platform.md)", cluster.Name)
	}

	return problems
}

// CheckFlux warns of clusters in which the last run installed Flux and this plan does not: Flux keeps reconciling.
func CheckFlux(plan *spec.Plan, installed func(cluster string) bool) (warnings []string) {
	for _, cluster := range plan.Clusters {
		if !installed(cluster.Name) || cluster.GitOps != nil || len(cluster.Nodes()) == 0 {
			continue
		}

		warnings = append(warnings, fmt.Sprintf("%s.gitops: is no longer set: Flux and everything that it created stay in cluster %s, and "+
			"it keeps reconciling; docs/platform.md describes how to remove it", clusterPath(cluster), cluster.Name))
	}

	return warnings
}

// clusterPath returns the path in the stack file of a cluster that has nodes: clusters[0].
func clusterPath(cluster spec.Cluster) string { return cluster.Nodes()[0].Parent() }

// KeepRoles makes clusters keep the roles that an earlier run created for their accounts (exists, by resource name),
// unless the stack file sets them: an account whose role changes briefly has none.
func KeepRoles(plan *spec.Plan, exists func(resource string) bool) {
	for i := range plan.Clusters {
		c := &plan.Clusters[i]
		if c.Proxmox == nil || c.Proxmox.RolesSet {
			continue
		}

		for _, role := range []string{"-csi-machines", "-csi-storage", "-ccm-machines"} {
			if exists(c.Name + role) {
				c.Proxmox.ExistingRoles = false
			}
		}
	}
}
