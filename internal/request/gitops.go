package request

import (
	"net/netip"

	"talos-proxmox/internal/spec"
)

// GitOps is the request of `talosops gitops`: Flux and the source that it reconciles.
type GitOps struct {
	Kubeconfig string `json:"kubeconfig"` // secret
	// Endpoints are the control planes' own addresses, tried in order: the virtual IP may not exist yet. Empty = the
	// server of the kubeconfig.
	Endpoints []netip.Addr `json:"endpoints,omitempty"`
	// Timeout limits the whole command. Empty = 15m.
	Timeout string `json:"timeout,omitempty"`

	// Chart, ChartVersion and ChartDigest are those of the Flux operator, as in HelmRelease.
	Chart        string `json:"chart"`
	ChartVersion string `json:"chartVersion"`
	ChartDigest  string `json:"chartDigest,omitempty"`

	Kind     string `json:"kind"` // git or oci
	URL      string `json:"url"`
	Ref      string `json:"ref"`
	Path     string `json:"path"`
	Interval string `json:"interval"`
	Version  string `json:"version"` // of Flux
	// Domain is the cluster's DNS domain. Empty = cluster.local.
	Domain string `json:"domain,omitempty"`

	PullSecret spec.PullSecret `json:"pullSecret"`
	Age        string          `json:"age,omitempty"` // secret keys; secret
	Verify     spec.Verify     `json:"verify,omitzero"`
	// SingleTenant disables the multi-tenancy lockdown of Flux.
	SingleTenant bool `json:"singleTenant,omitempty"`
	// Facts are values about the cluster that Git may use, by name.
	Facts map[string]string `json:"facts"`
	// CiliumValues are the values of Cilium's release, as YAML, for a HelmRelease that adopts it; may contain secrets.
	// Empty = the program installs no CNI.
	CiliumValues string `json:"ciliumValues,omitempty"`
}

// GitOpsResult is the result of `talosops gitops`: the time of its reconcile request to Flux. It differs after each
// run, so that resources that depend on it run again.
type GitOpsResult struct {
	Asked string `json:"asked"`
}

// Reconciled is the request of `talosops reconciled`, which waits for Flux.
type Reconciled struct {
	Kubeconfig string `json:"kubeconfig"` // secret
	// Endpoints are the control planes' own addresses, tried in order: the virtual IP may not exist yet. Empty = the
	// server of the kubeconfig.
	Endpoints []netip.Addr `json:"endpoints,omitempty"`
	// Timeout limits the waiting. Empty = 15m.
	Timeout string `json:"timeout,omitempty"`
	Kind    string `json:"kind"`  // git or oci
	Asked   string `json:"asked"` // as `talosops gitops` printed it
}
