package main

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"talos-proxmox/internal/spec"
)

// judgeTenants finds objects of Flux outside of its namespace that Flux refuses unless the cluster has one tenant:
// those that use what is in another namespace, and those that name no account to act as.
func (c *cluster) judgeTenants(planned spec.Cluster) {
	if planned.GitOps.SingleTenant {
		return
	}

	for _, one := range c.components {
		for _, o := range one.objects {
			isFlux := isRelease(o) || o.GroupVersionKind().Group == fluxGroup && o.GetKind() == "Kustomization"
			if !isFlux || o.GetNamespace() == fluxNamespace {
				continue
			}

			at := fmt.Sprintf("%s: %s %s/%s", one.folder, o.GetKind(), o.GetNamespace(), o.GetName())

			const way = "set gitops.singleTenant of cluster %s where nobody else writes to the repository"

			if text(o, "", "spec", "serviceAccountName") == "" {
				c.report("%s names no account, and has no rights without one: write spec.serviceAccountName, or "+way, at, planned.Name)
			}

			fields, _, _ := unstructured.NestedMap(o.Object, "spec")
			for _, key := range []string{"sourceRef", "chartRef"} {
				for _, parent := range withKey(fields, key) {
					reference, _ := parent[key].(map[string]any)
					if in := reference["namespace"]; in != nil && in != o.GetNamespace() {
						c.report("%s uses a source of the namespace %v: have the source beside it, or "+way, at, in, planned.Name)
					}
				}
			}
		}
	}
}
