package spec

// ProxmoxConfig holds the topology of a cluster's nodes on Proxmox, and the Proxmox accounts of its software.
type ProxmoxConfig struct {
	// The name of the Proxmox cluster. Every node has it in its label `topology.kubernetes.io/region` and in its provider
	// id, `proxmox://<region>/<vmid>`, which cannot change. The label `topology.kubernetes.io/zone` is the node's host.
	Region string `json:"region" jsonschema:"required,example=homelab"`
	// The certificate authority of the hosts' certificates, as PEM text, for software in the cluster:
	// `/etc/pve/pve-root-ca.pem` of any host, which is public. Default: the authorities that the software trusts by
	// itself.
	CA string `json:"ca,omitempty"`
	// Where the accounts' roles come from: `existing` = the roles of docs/permissions.md, created by an administrator;
	// `make` = the program creates roles for each account, which needs Sys.Modify on /access, with which a token can
	// change every role. Default: `existing`; a stack whose state has roles of `make`, or from before 2026-11-25, keeps
	// them.
	Roles string `json:"roles,omitempty" jsonschema:"enum=make,enum=existing"`
	// A Proxmox account for the Proxmox CSI plugin, which provides volumes on datastores. Default: none.
	CSI *CSIConfig `json:"csi,omitempty"`
	// A Proxmox account for the Proxmox cloud controller manager, which deletes the Node objects of machines that are
	// gone. Default: none.
	CloudController *Identity `json:"cloudController,omitempty"`
}

// Identity is a Proxmox account of software in the cluster: a user without a password in the realm pve, in the group
// talos-kubernetes, and separated tokens with the privileges that the software needs on the cluster's own machines and
// datastores.
type Identity struct {
	// The user's name without its realm, and the prefix of its roles' names.
	Account string `json:"-" pulumi:"account"`
	// The numbers of its tokens; the cluster gets the last one. To rotate: add a number, run `up`, restart the software,
	// remove the first number. Default: 1.
	Tokens []int `json:"tokens,omitempty" jsonschema:"example=1" pulumi:"tokens,optional"`
}

// CSIConfig is the Proxmox account of the CSI plugin, and its storage classes.
type CSIConfig struct {
	// The storage classes; the plugin can use their datastores only.
	StorageClasses []StorageClass `json:"storageClasses" jsonschema:"required,minItems=1"`
	Identity
}

// StorageClass is a storage class of Kubernetes on a datastore, for the Proxmox CSI plugin.
type StorageClass struct {
	// The storage class's name.
	Name string `json:"name" jsonschema:"required,example=proxmox" pulumi:"name"`
	// The datastore, with the content type `images`. Volumes on a datastore that hosts do not share stay on their host.
	Datastore string `json:"datastore" jsonschema:"required,example=local-zfs" pulumi:"datastore"`
	// The file system of new volumes.
	FSType string `json:"fsType,omitempty" jsonschema:"default=ext4,enum=ext4,enum=xfs" pulumi:"fsType,optional"`
	// Attach volumes as solid-state disks, with discard.
	SSD bool `json:"ssd,omitempty" jsonschema:"default=false" pulumi:"ssd,optional"`
	// What happens to a volume when its claim is deleted: Delete or Retain.
	ReclaimPolicy string `json:"reclaimPolicy,omitempty" jsonschema:"default=Delete,enum=Delete,enum=Retain" pulumi:"reclaimPolicy,optional"`
	// Make it the default storage class.
	Default bool `json:"default,omitempty" jsonschema:"default=false" pulumi:"default,optional"`

	// Path is its path in the configuration.
	Path string `json:"-"`
}
