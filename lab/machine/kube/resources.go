package kube

// kind is a resource the server knows.
type kind struct {
	group, version   string
	plural, singular string
	kind             string
	namespaced       bool
	short            []string
	verbs            []string
	columns          []column
}

var (
	readVerbs = []string{"get", "list", "watch"}
	nodeVerbs = []string{"delete", "get", "list", "patch", "watch"}
)

// kinds are the served resources, in the order of discovery.
var kinds = []*kind{
	{version: "v1", plural: "events", singular: "event", kind: "Event", namespaced: true, short: []string{"ev"}, verbs: readVerbs, columns: eventColumns},
	{version: "v1", plural: "namespaces", singular: "namespace", kind: "Namespace", short: []string{"ns"}, verbs: readVerbs, columns: namespaceColumns},
	{version: "v1", plural: "nodes", singular: "node", kind: "Node", short: []string{"no"}, verbs: nodeVerbs, columns: nodeColumns},
	{version: "v1", plural: "pods", singular: "pod", kind: "Pod", namespaced: true, short: []string{"po"}, verbs: readVerbs, columns: podColumns},
	{version: "v1", plural: "services", singular: "service", kind: "Service", namespaced: true, short: []string{"svc"}, verbs: readVerbs, columns: serviceColumns},
	{group: "apps", version: "v1", plural: "daemonsets", singular: "daemonset", kind: "DaemonSet", namespaced: true, short: []string{"ds"}, verbs: readVerbs, columns: daemonSetColumns},
	{group: "apps", version: "v1", plural: "deployments", singular: "deployment", kind: "Deployment", namespaced: true, short: []string{"deploy"}, verbs: readVerbs, columns: deploymentColumns},
}

func (k *kind) apiVersion() string {
	if k.group == "" {
		return k.version
	}

	return k.group + "/" + k.version
}

// discovery answers the discovery paths; false for any other.
func discovery(path string) (any, bool) {
	groupVersion := map[string]any{"groupVersion": "apps/v1", "version": "v1"}

	switch path {
	case "/api":
		return map[string]any{"kind": "APIVersions", "versions": []string{"v1"}, "serverAddressByClientCIDRs": []any{}}, true
	case "/apis":
		group := map[string]any{"name": "apps", "versions": []any{groupVersion}, "preferredVersion": groupVersion}

		return map[string]any{"kind": "APIGroupList", "apiVersion": "v1", "groups": []any{group}}, true
	case "/apis/apps":
		return map[string]any{"kind": "APIGroup", "apiVersion": "v1", "name": "apps", "versions": []any{groupVersion}, "preferredVersion": groupVersion}, true
	case "/api/v1":
		return resourceList("", "v1"), true
	case "/apis/apps/v1":
		return resourceList("apps", "apps/v1"), true
	}

	return nil, false
}

func resourceList(group, groupVersion string) any {
	var list []any

	for _, k := range kinds {
		if k.group == group {
			list = append(list, map[string]any{
				"name": k.plural, "singularName": k.singular, "namespaced": k.namespaced, "kind": k.kind, "verbs": k.verbs, "shortNames": k.short,
			})
		}
	}

	return map[string]any{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": groupVersion, "resources": list}
}
