package verbs

import (
	"context"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/kube"
	"talos-proxmox/talosops/verb"
)

const accessHelp = `Gives groups of an identity provider their ClusterRoles, in a whole cluster: docs/api-server.md.

Each ClusterRole has a ClusterRoleBinding talos-proxmox:<role>, with the label talos-proxmox/part=access, applied by
server-side apply. Those with the label that are no longer set are deleted; with --remove, all of them. A binding of the
same name without the label belongs to somebody else: the verb fails and names the owner.

Control planes are asked on their own addresses; one that answers is enough.`

// accessRequest has a secret: the kubeconfig.
type accessRequest struct {
	request.Access
	verb.Base
}

func (r *accessRequest) Problems() problem.List {
	problems := append(verb.NodeProblems(r.ControlPlanes), r.OpenKubernetes(r.Kubeconfig)...)

	for role, groups := range r.ClusterRoles {
		if role == "" || len(groups) == 0 || slices.Contains(groups, "") {
			problems.Add("clusterRoles."+role, nil, "needs a role and groups: set the names of both")
		}
	}

	return problems.Sorted()
}

func runAccess(ctx context.Context, s *verb.Session, req *accessRequest) (any, error) {
	applier := &objectApplier{
		Cluster: s.Cluster, what: "bindings of ClusterRoles", part: kube.PartAccess,
		kinds: []string{kube.KindClusterRoleBinding},
	}

	roles := slices.Sorted(maps.Keys(req.ClusterRoles))
	if s.Remove {
		roles = nil
	}

	for _, role := range roles {
		applier.objects = append(applier.objects, roleBinding(role, req.ClusterRoles[role]))
	}

	return struct {
		ClusterRoles []string `json:"clusterRoles"`
	}{roles}, applier.apply(ctx)
}

// roleBinding gives groups a ClusterRole. Its name has the role's, to which a binding is tied for ever.
func roleBinding(role string, groups []string) *unstructured.Unstructured {
	const group = "rbac.authorization.k8s.io"

	subjects := make([]any, 0, len(groups))
	for _, name := range groups {
		subjects = append(subjects, map[string]any{"apiGroup": group, "kind": "Group", "name": name})
	}

	return kube.NewObject(kube.PartAccess, kube.KindClusterRoleBinding, "", "talos-proxmox:"+role, map[string]any{
		"roleRef":  map[string]any{"apiGroup": group, "kind": "ClusterRole", "name": role},
		"subjects": subjects,
	})
}
