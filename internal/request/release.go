package request

import (
	"encoding/json"

	"talos-proxmox/internal/cilium"
)

// CNI is the request of `talosops cni`: the Helm release of a cluster's CNI.
type CNI struct {
	Common

	Release    HelmRelease `json:"release"`
	Kubeconfig string      `json:"kubeconfig,omitempty"` // secret
}

// CNIResult is the result of `talosops cni`. It is the same whether or not something was installed, so that
// dependent resources do not change.
type CNIResult struct {
	Release string `json:"release"`
	Version string `json:"version"`
}

// HelmRelease is a Helm release and the objects that belong to it.
type HelmRelease struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	// Chart is the location of the chart's archive: oci://…, https://….tgz, file:///….tgz or a path.
	Chart   string `json:"chart"`
	Version string `json:"version"`
	// Digest is sha256:… of the archive or, for a chart in a registry, of its manifest. Empty = any.
	Digest string          `json:"digest,omitempty"`
	Values json.RawMessage `json:"values,omitempty"` // may contain secrets

	// Before and then Manifests are applied before the release, After after it.
	Manifests []Manifest        `json:"manifests,omitempty"`
	Before    []json.RawMessage `json:"before,omitempty"` // objects, which may be secrets
	After     []json.RawMessage `json:"after,omitempty"`  // objects, which may be secrets
	// Absent are objects of earlier requests to delete, unless something else created them.
	Absent []ObjectName `json:"absent,omitempty"`
}

type (
	// Manifest is a file of objects in YAML.
	Manifest = cilium.Manifest
	// ObjectName identifies an object.
	ObjectName = cilium.ObjectName
)
