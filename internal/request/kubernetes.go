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

// KubernetesUpgrade is what kubeupgrade reads: a cluster that was found steady, and what it runs. The end of its
// standard input ends it.
type KubernetesUpgrade struct {
	Talosconfig string `json:"talosconfig"` // secret
	// Endpoints are the control planes' addresses: Talos is asked through any of them, Kubernetes on the first.
	Endpoints []string `json:"endpoints"`
	// Nodes are all that Kubernetes has, for progress: what is changed is asked of Kubernetes itself.
	Nodes []Node `json:"nodes"`
	From  string `json:"from"` // the oldest version that runs
	To    string `json:"to"`
	// Images are the repositories that images come from, by component; one that is left out is Talos' own.
	Images KubernetesImages `json:"images"`
	// Kubelets says that these are upgraded as well. Without a CNI no node is Ready, which that waits for.
	Kubelets bool `json:"kubelets"`
}

// KubernetesImages are repositories of images, without tags.
type KubernetesImages struct {
	APIServer         string `json:"apiServer,omitempty"`
	ControllerManager string `json:"controllerManager,omitempty"`
	Scheduler         string `json:"scheduler,omitempty"`
	Proxy             string `json:"proxy,omitempty"`
	Kubelet           string `json:"kubelet,omitempty"`
}
