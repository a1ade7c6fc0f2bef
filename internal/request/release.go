package request

import "encoding/json"

// CNI is what `talosops cni` reads: the release that brings a cluster's pods their network.
type CNI struct {
	Common

	Release    HelmRelease `json:"release"`
	Kubeconfig string      `json:"kubeconfig,omitempty"` // secret
}

// CNIInstalled is what `talosops cni` prints. It is the same whether or not there was something to do, so that what
// follows from it does not change.
type CNIInstalled struct {
	Release string `json:"release"`
	Version string `json:"version"`
}

// HelmRelease is a release that a cluster has to have, and what belongs to it.
type HelmRelease struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	// Chart is where the chart's archive is: oci://…, https://….tgz, file:///….tgz or a path.
	Chart   string `json:"chart"`
	Version string `json:"version"`
	// Digest is sha256:… of the archive; of a chart in a registry its manifest's will do as well. Empty = any.
	Digest string          `json:"digest,omitempty"`
	Values json.RawMessage `json:"values,omitempty"` // may hold secrets

	// Before is applied before the release, and then Manifests. After follows it.
	Manifests []Manifest        `json:"manifests,omitempty"`
	Before    []json.RawMessage `json:"before,omitempty"` // objects, which may be secrets
	After     []json.RawMessage `json:"after,omitempty"`  // objects, which may be secrets
	// Absent are objects of earlier requests that are not wanted any more. What someone else made stays.
	Absent []ObjectName `json:"absent,omitempty"`
}

// Manifest is a file of objects in YAML.
type Manifest struct {
	// Source is where it is: https://…, file:///… or a path.
	Source string `json:"source"`
	// Digest is sha256:… of the file.
	Digest string `json:"digest"`
}

// ObjectName says which object.
type ObjectName struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
}
