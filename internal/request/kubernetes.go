package request

// Kubernetes is the request of `talosops kubernetes`: the version to upgrade a cluster to.
type Kubernetes struct {
	Common

	KubernetesVersion string `json:"kubernetesVersion"`
	// Skip are nodes that are not upgraded.
	Skip []string `json:"skip,omitempty"`
	// Backup is where a snapshot of etcd is stored before the upgrade; nil = nowhere.
	Backup      *Backup `json:"backup,omitempty"`
	Talosconfig string  `json:"talosconfig,omitempty"` // secret
}

// KubernetesResult is the result of `talosops kubernetes`. It is the same whether or not something was upgraded, so
// that dependent resources do not change.
type KubernetesResult struct {
	KubernetesVersion string `json:"kubernetesVersion"`
}
