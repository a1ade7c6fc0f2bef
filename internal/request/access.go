package request

// Access is the request of `talosops access`: the groups that have ClusterRoles in the whole cluster.
type Access struct {
	Common

	// ClusterRoles are the groups, as the API server names them, by ClusterRole.
	ClusterRoles map[string][]string `json:"clusterRoles,omitempty"`
	Kubeconfig   string              `json:"kubeconfig,omitempty"` // secret
}
