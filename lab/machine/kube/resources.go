package kube

import (
	"slices"
	"strings"
)

// Kind is a resource that the server knows. All are of version v1.
type Kind struct {
	Group, Plural, Kind string
	Namespaced          bool
	// Stored objects are kept as clients and manifests state them.
	Stored bool

	singular string
	short    []string
	verbs    []string
	columns  []column
}

var (
	readVerbs  = []string{"get", "list", "watch"}
	nodeVerbs  = []string{"delete", "get", "list", "patch", "watch"}
	writeVerbs = []string{"create", "delete", "get", "list", "update", "watch"}
)

const (
	rbac       = "rbac.authorization.k8s.io"
	scheduling = "scheduling.k8s.io"
	storage    = "storage.k8s.io"
)

// kinds are the served resources, in the order of discovery.
var kinds = []*Kind{
	stored("", "configmaps", "ConfigMap", true, dataColumns, "cm"),
	{Plural: "events", singular: "event", Kind: "Event", Namespaced: true, short: []string{"ev"}, verbs: readVerbs, columns: eventColumns},
	stored("", "namespaces", "Namespace", false, namespaceColumns, "ns"),
	{Plural: "nodes", singular: "node", Kind: "Node", short: []string{"no"}, verbs: nodeVerbs, columns: nodeColumns},
	{Plural: "pods", singular: "pod", Kind: "Pod", Namespaced: true, short: []string{"po"}, verbs: readVerbs, columns: podColumns},
	stored("", "secrets", "Secret", true, dataColumns),
	stored("", "serviceaccounts", "ServiceAccount", true, plainColumns, "sa"),
	stored("", "services", "Service", true, serviceColumns, "svc"),
	stored("apps", "daemonsets", "DaemonSet", true, daemonSetColumns, "ds"),
	stored("apps", "deployments", "Deployment", true, deploymentColumns, "deploy"),
	stored("batch", "cronjobs", "CronJob", true, plainColumns, "cj"),
	stored("batch", "jobs", "Job", true, plainColumns),
	stored("node.k8s.io", "runtimeclasses", "RuntimeClass", false, runtimeClassColumns),
	stored(rbac, "clusterrolebindings", "ClusterRoleBinding", false, plainColumns),
	stored(rbac, "clusterroles", "ClusterRole", false, plainColumns),
	stored(rbac, "rolebindings", "RoleBinding", true, plainColumns),
	stored(rbac, "roles", "Role", true, plainColumns),
	stored(scheduling, "priorityclasses", "PriorityClass", false, plainColumns, "pc"),
	stored(storage, "storageclasses", "StorageClass", false, plainColumns, "sc"),
}

func stored(group, plural, name string, namespaced bool, columns []column, short ...string) *Kind {
	return &Kind{
		Group: group, Plural: plural, Kind: name, Namespaced: namespaced, Stored: true,
		singular: strings.ToLower(name), short: short, verbs: writeVerbs, columns: columns,
	}
}

// APIVersion is the group and version as objects state it.
func (k *Kind) APIVersion() string {
	if k.Group == "" {
		return "v1"
	}

	return k.Group + "/v1"
}

// FindKind returns the resource of an object's apiVersion and kind.
func FindKind(apiVersion, kind string) (*Kind, bool) {
	i := slices.IndexFunc(kinds, func(k *Kind) bool { return k.APIVersion() == apiVersion && k.Kind == kind })
	if i < 0 {
		return nil, false
	}

	return kinds[i], true
}

// groups are the named API groups.
func groups() []string {
	var names []string

	for _, k := range kinds {
		if k.Group != "" && !slices.Contains(names, k.Group) {
			names = append(names, k.Group)
		}
	}

	return names
}

func apiGroup(name string) map[string]any {
	version := map[string]any{"groupVersion": name + "/v1", "version": "v1"}

	return map[string]any{"name": name, "versions": []any{version}, "preferredVersion": version}
}

// discovery answers the discovery paths; false for any other.
func discovery(path string) (any, bool) {
	switch path {
	case "/api":
		return map[string]any{"kind": "APIVersions", "versions": []string{"v1"}, "serverAddressByClientCIDRs": []any{}}, true
	case "/apis":
		list := []any{}
		for _, name := range groups() {
			list = append(list, apiGroup(name))
		}

		return map[string]any{"kind": "APIGroupList", "apiVersion": "v1", "groups": list}, true
	case "/api/v1":
		return resourceList("", "v1"), true
	}

	name, found := strings.CutPrefix(path, "/apis/")
	group, versioned := strings.CutSuffix(name, "/v1")

	switch {
	case !found || !slices.Contains(groups(), group):
		return nil, false
	case versioned:
		return resourceList(group, name), true
	default:
		body := apiGroup(group)
		body["kind"], body["apiVersion"] = "APIGroup", "v1"

		return body, true
	}
}

func resourceList(group, groupVersion string) any {
	var list []any

	for _, k := range kinds {
		if k.Group == group {
			list = append(list, map[string]any{
				"name": k.Plural, "singularName": k.singular, "namespaced": k.Namespaced, "kind": k.Kind, "verbs": k.verbs, "shortNames": k.short,
			})
		}
	}

	return map[string]any{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": groupVersion, "resources": list}
}
