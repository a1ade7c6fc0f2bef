package vmdiff

import (
	"fmt"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/spec"
)

// KeptCNIs refuses clusters whose CNI the last run installed and this one would leave to nobody.
func KeptCNIs(plan *spec.Plan, installed func(cluster string) bool) (problems problem.List) {
	for _, cluster := range plan.Clusters {
		if !installed(cluster.Name) || cluster.CNI != nil || len(cluster.Nodes()) == 0 {
			continue
		}

		problems.Add(clusterPath(cluster)+".cni.kind", "none",
			"would leave Cilium, which brings the pods of cluster %s their network, to nobody; set cilium, "+
				"which leaves it alone where Flux has it, or take it out yourself (docs/platform.md)", cluster.Name)
	}

	return problems
}

// LeftFlux warns of clusters that the last run brought Flux to and this one does not: it stays and keeps reconciling.
func LeftFlux(plan *spec.Plan, brought func(cluster string) bool) (warnings []string) {
	for _, cluster := range plan.Clusters {
		if !brought(cluster.Name) || cluster.GitOps != nil || len(cluster.Nodes()) == 0 {
			continue
		}

		warnings = append(warnings, fmt.Sprintf("%s.gitops: is no longer set: Flux and everything that it created stay in cluster %s, and "+
			"it keeps reconciling; docs/platform.md describes how to remove it", clusterPath(cluster), cluster.Name))
	}

	return warnings
}

// clusterPath leads to a cluster with nodes in the configuration: clusters[0].
func clusterPath(cluster spec.Cluster) string { return cluster.Nodes()[0].Parent() }

// KeepRoles has clusters keep the roles that an earlier run made for their accounts, by the names of the roles'
// resources, where the stack file does not say otherwise: accounts whose roles change have none for a moment.
func KeepRoles(plan *spec.Plan, made func(resource string) bool) {
	for i := range plan.Clusters {
		c := &plan.Clusters[i]
		if c.Proxmox == nil || c.Proxmox.RolesStated {
			continue
		}

		for _, role := range []string{"-csi-machines", "-csi-storage", "-ccm-machines"} {
			if made(c.Name + role) {
				c.Proxmox.ExistingRoles = false
			}
		}
	}
}
