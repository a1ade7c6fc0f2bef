package request

import "talos-proxmox/internal/spec"

// GitOps is what `talosops gitops` reads: what Flux reconciles a cluster from.
type GitOps struct {
	Kubeconfig string `json:"kubeconfig"` // secret
	// Endpoints are the control planes' own addresses: the first that answers is asked, and never the shared one, which
	// may be nowhere yet. Empty = the server of the kubeconfig.
	Endpoints []string `json:"endpoints,omitempty"`
	// Timeout says how long the whole may take: 15m. Empty = that.
	Timeout string `json:"timeout,omitempty"`

	// Chart, ChartVersion and ChartDigest are those of Flux' operator, as in HelmRelease.
	Chart        string `json:"chart"`
	ChartVersion string `json:"chartVersion"`
	ChartDigest  string `json:"chartDigest,omitempty"`

	Kind     string `json:"kind"` // git or oci
	URL      string `json:"url"`
	Ref      string `json:"ref"`
	Path     string `json:"path"`
	Interval string `json:"interval"`
	Version  string `json:"version"` // of Flux
	// Domain is the cluster's, of its DNS. Empty = cluster.local.
	Domain string `json:"domain,omitempty"`

	PullSecret spec.PullSecret `json:"pullSecret"`
	Age        string          `json:"age,omitempty"` // secret keys; secret
	Verify     spec.Verify     `json:"verify,omitzero"`
	// SingleTenant lifts the lockdown of Flux' objects outside of its own namespace.
	SingleTenant bool `json:"singleTenant,omitempty"`
	// Facts are what Git may know of the cluster, by name.
	Facts map[string]string `json:"facts"`
	// CiliumValues are those of Cilium's release, as YAML, for a HelmRelease that takes it over; may hold secrets. Empty =
	// the program installs no CNI.
	CiliumValues string `json:"ciliumValues,omitempty"`
}

// Asked is what `talosops gitops` prints: when it was done, which is what Flux is asked to reconcile for. It differs
// after each run, so that what follows from it runs again.
type Asked struct {
	Asked string `json:"asked"`
}

// Reconciled is what `talosops reconciled` reads: what Flux has to have reconciled.
type Reconciled struct {
	Kubeconfig string `json:"kubeconfig"` // secret
	// Endpoints are the control planes' own addresses: the first that answers is asked, and never the shared one, which
	// may be nowhere yet. Empty = the server of the kubeconfig.
	Endpoints []string `json:"endpoints,omitempty"`
	// Timeout says how long to wait: 15m. Empty = that.
	Timeout string `json:"timeout,omitempty"`
	Kind    string `json:"kind"`  // git or oci
	Asked   string `json:"asked"` // as `talosops gitops` printed it
}
