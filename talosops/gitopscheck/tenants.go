package main

import (
	"fmt"

	"talos-proxmox/internal/spec"
)

// judgeTenants finds objects of Flux outside of its namespace that Flux refuses unless the cluster has one tenant:
// those that use what is in another namespace, and those that name no account to act as.
func (c *cluster) judgeTenants(planned spec.Cluster) {
	if planned.GitOps.SingleTenant {
		return
	}

	const way = "set gitops.singleTenant of cluster %s where nobody else writes to the repository"

	for one, o := range c.objects() {
		if !isRelease(o) && !isKind(o, fluxGroup, "Kustomization") || o.GetNamespace() == fluxNamespace {
			continue
		}

		at := fmt.Sprintf("%s: %s %s/%s", one.folder, o.GetKind(), o.GetNamespace(), o.GetName())

		if text(o, "", "spec", "serviceAccountName") == "" {
			c.report("%s names no account, and has no rights without one: write spec.serviceAccountName, or "+way, at, planned.Name)
		}

		for _, key := range []string{"sourceRef", "chartRef"} {
			for _, parent := range withKey(fields(o, "spec"), key) {
				reference, _ := parent[key].(map[string]any)
				if in := reference["namespace"]; in != nil && in != o.GetNamespace() {
					c.report("%s uses a source of the namespace %v: have the source beside it, or "+way, at, in, planned.Name)
				}
			}
		}
	}
}
