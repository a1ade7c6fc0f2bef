package request

import "talos-proxmox/internal/spec"

// Proxmox is the request of `talosops proxmox`: Proxmox accounts of software in the cluster, and storage classes.
type Proxmox struct {
	Common

	// Region is the name of this Proxmox cluster in the software's configuration.
	Region string `json:"region"`
	// URL is that of the API: https://10.0.0.2:8006/api2/json.
	URL string `json:"url"`
	// Insecure disables certificate verification; CA is an additional trusted authority, as PEM; empty = none.
	Insecure       bool                `json:"insecure,omitempty"`
	CA             string              `json:"ca,omitempty"`
	StorageClasses []spec.StorageClass `json:"storageClasses,omitempty"`
	// Tokens are user@realm!name=secret by purpose: [ForCSI], [ForCCM]. Secret.
	Tokens     map[string]string `json:"tokens,omitempty"`
	Kubeconfig string            `json:"kubeconfig,omitempty"` // secret
}

// Purposes of tokens: the Proxmox CSI plugin, and the Proxmox cloud controller manager.
const (
	ForCSI = "csi"
	ForCCM = "ccm"
)
