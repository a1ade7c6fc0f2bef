package request

// Kubernetes is what `talosops kubernetes` reads: the version that a cluster has to run.
type Kubernetes struct {
	Common

	KubernetesVersion string `json:"kubernetesVersion"`
	// Skip are nodes that are left as they are.
	Skip []string `json:"skip,omitempty"`
	// Backup is where a snapshot of etcd is kept before anything is changed; nil = nowhere.
	Backup      *Backup `json:"backup,omitempty"`
	Talosconfig string  `json:"talosconfig,omitempty"` // secret
}

// KubernetesUpgraded is what `talosops kubernetes` prints. It is the same whether or not there was something to do, so
// that what follows from it does not change.
type KubernetesUpgraded struct {
	KubernetesVersion string `json:"kubernetesVersion"`
}
