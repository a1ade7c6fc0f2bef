package request

import "talos-proxmox/internal/spec"

// Proxmox is what `talosops proxmox` reads: accounts on Proxmox that software in the cluster gets, and storage classes.
type Proxmox struct {
	Common

	// Region is what the software calls this Proxmox cluster.
	Region string `json:"region"`
	// URL is where it calls the API: https://10.0.0.2:8006/api2/json.
	URL string `json:"url"`
	// Insecure lets it take any certificate, CA is the authority whose it takes as well, as PEM; empty = none.
	Insecure       bool                `json:"insecure,omitempty"`
	CA             string              `json:"ca,omitempty"`
	StorageClasses []spec.StorageClass `json:"storageClasses,omitempty"`
	// Tokens are user@realm!name=secret by what they are for: [ForCSI], [ForCCM]. Secret.
	Tokens     map[string]string `json:"tokens,omitempty"`
	Kubeconfig string            `json:"kubeconfig,omitempty"` // secret
}

// What tokens are for: the Proxmox CSI plugin, and the Proxmox cloud controller manager.
const (
	ForCSI = "csi"
	ForCCM = "ccm"
)
