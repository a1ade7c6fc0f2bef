package spec

// ProxmoxConfig is what a cluster knows of the Proxmox cluster that it lives on, and what its own software may do
// there.
type ProxmoxConfig struct {
	// The name of the Proxmox cluster: every node has it as its label `topology.kubernetes.io/region`, and in its provider
	// id, `proxmox://<region>/<vmid>`, which it keeps for its life. Its label `topology.kubernetes.io/zone` is its host.
	Region string `json:"region" jsonschema:"required,example=homelab"`
	// The certificate of the authority that signed the hosts' certificates, as PEM text, for software in the cluster; it
	// is public: `/etc/pve/pve-root-ca.pem` on every host. Default: what the software trusts itself.
	CA string `json:"ca,omitempty"`
	// Where the accounts' roles come from: `existing` = the roles of docs/permissions.md, made by an administrator; `make` =
	// each account has its own, which takes Sys.Modify on /access, and that lets a token change every role. Default:
	// `existing`; where the state has roles of the accounts' own, from before 2026-11-25 or by `make`, they stay.
	Roles string `json:"roles,omitempty" jsonschema:"enum=make,enum=existing"`
	// An account for the Proxmox CSI plugin, which gives pods volumes on datastores. Default: none.
	CSI *CSIConfig `json:"csi,omitempty"`
	// An account for the Proxmox cloud controller manager, which removes the nodes of machines that are gone. Default:
	// none.
	CloudController *IdentityConfig `json:"cloudController,omitempty"`
}

// IdentityConfig is an account on Proxmox of software in the cluster: a user without a password, and separated tokens
// that may do what the software needs on the cluster's own machines and datastores, and nothing else.
type IdentityConfig struct {
	// The numbers of its tokens; the cluster gets the last one. Default: 1. To rotate: add a number, restart the software
	// after the next `up`, remove the first one.
	Tokens []int `json:"tokens,omitempty" jsonschema:"example=1"`
}

// CSIConfig is the account of the Proxmox CSI plugin, and the storage classes that are made for it.
type CSIConfig struct {
	// The storage classes; the plugin may use their datastores, and no other.
	StorageClasses []StorageClassConfig `json:"storageClasses" jsonschema:"required,minItems=1"`
	IdentityConfig
}

// StorageClassConfig is a storage class of Kubernetes on a datastore.
type StorageClassConfig struct {
	// The storage class's name.
	Name string `json:"name" jsonschema:"required,example=proxmox"`
	// The datastore, with the content type `images`; volumes on one that hosts do not share stay on their host.
	Datastore string `json:"datastore" jsonschema:"required,example=local-zfs"`
	// The file system of new volumes.
	FSType string `json:"fsType,omitempty" jsonschema:"default=ext4,enum=ext4,enum=xfs"`
	// Show volumes to machines as solid-state disks, and pass on what is deleted.
	SSD bool `json:"ssd,omitempty" jsonschema:"default=false"`
	// What becomes of a volume whose claim is deleted.
	ReclaimPolicy string `json:"reclaimPolicy,omitempty" jsonschema:"default=Delete,enum=Delete,enum=Retain"`
	// Give volumes of this class to claims that name none.
	Default bool `json:"default,omitempty" jsonschema:"default=false"`
}
