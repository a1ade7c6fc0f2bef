package main

import (
	"fmt"

	"talos-proxmox/internal/spec"
)

// checkTenants finds objects of Flux outside of its namespace that Flux refuses unless the cluster has one tenant:
// those that use a source in another namespace, and those that name no service account.
func (c *cluster) checkTenants(planned spec.Cluster) {
	if planned.GitOps.SingleTenant {
		return
	}

	const advice = "set gitops.singleTenant of cluster %s if nobody else writes to the repository"

	for comp, o := range c.objects() {
		if !isRelease(o) && !isKind(o, fluxGroup, "Kustomization") || o.GetNamespace() == fluxNamespace {
			continue
		}

		at := fmt.Sprintf("%s: %s %s/%s", comp.folder, o.GetKind(), o.GetNamespace(), o.GetName())

		if text(o, "", "spec", "serviceAccountName") == "" {
			c.report("%s names no service account, and has no rights without one: set spec.serviceAccountName, or "+advice, at,
				planned.Name)
		}

		for _, key := range []string{"sourceRef", "chartRef"} {
			for _, parent := range mapsWithKey(fields(o, "spec"), key) {
				reference, _ := parent[key].(map[string]any)
				if namespace := reference["namespace"]; namespace != nil && namespace != o.GetNamespace() {
					c.report("%s uses a source in the namespace %v: move the source to its own, or "+advice, at, namespace, planned.Name)
				}
			}
		}
	}
}
