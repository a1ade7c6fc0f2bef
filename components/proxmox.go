package components

import (
	"fmt"
	"slices"

	"talos-proxmox/internal/problem"
)

// Proxmox is the topology of a cluster's nodes on Proxmox, and the Proxmox accounts of its software. The nodes get the
// labels topology.kubernetes.io/region and zone, and the provider id proxmox://<region>/<vmid>.
type Proxmox struct {
	// The name of the Proxmox cluster, which cannot change while nodes exist.
	Region string `pulumi:"region"`
	// The URL of the Proxmox API for software in the cluster, without a path: https://10.0.0.2:8006. Required with
	// accounts.
	Endpoint string `pulumi:"endpoint,optional"`
	// Whether that software accepts any certificate of the API. Default: false.
	Insecure bool `pulumi:"insecure,optional"`
	// The certificate authority of the API's certificate, as PEM text. Default: none, the authorities that the software
	// trusts by itself.
	CA string `pulumi:"ca,optional"`
	// Give accounts the roles of docs/permissions.md, which an administrator has created, instead of their own. Default:
	// false.
	ExistingRoles bool `pulumi:"existingRoles,optional"`
	// The account of the Proxmox CSI plugin. Default: none.
	CSI *Identity `pulumi:"csi,optional"`
	// The account of the Proxmox cloud controller manager. Default: none.
	CloudController *Identity `pulumi:"cloudController,optional"`
	// Storage classes for the CSI plugin, which may use their datastores. Default: none.
	StorageClasses []StorageClass `pulumi:"storageClasses,optional"`
}

// Identity is a Proxmox account of software in a cluster: a user without a password in the realm pve, in the group
// talos-kubernetes, and separated tokens.
type Identity struct {
	// The user's name without its realm, and the prefix of its roles' names.
	Account string `pulumi:"account"`
	// The numbers of its tokens; the cluster gets the last one. Default: 1.
	Tokens []int `pulumi:"tokens,optional"`
}

// StorageClass is a storage class of Kubernetes on a datastore.
type StorageClass struct {
	// Its name.
	Name string `pulumi:"name"`
	// The datastore.
	Datastore string `pulumi:"datastore"`
	// The file system of new volumes. Default: ext4.
	FSType string `pulumi:"fsType,optional"`
	// Attach volumes as solid-state disks, with discard. Default: false.
	SSD bool `pulumi:"ssd,optional"`
	// What happens to a volume when its claim is deleted: Delete or Retain. Default: Delete.
	ReclaimPolicy string `pulumi:"reclaimPolicy,optional"`
	// Whether it is the default storage class. Default: false.
	Default bool `pulumi:"default,optional"`
}

func (x *Proxmox) withDefaults() *Proxmox {
	if x == nil {
		return nil
	}

	copied := *x
	copied.CSI, copied.CloudController = x.CSI.withDefaults(), x.CloudController.withDefaults()

	copied.StorageClasses = slices.Clone(x.StorageClasses)
	for i := range copied.StorageClasses {
		setDefault(&copied.StorageClasses[i].FSType, "ext4")
		setDefault(&copied.StorageClasses[i].ReclaimPolicy, "Delete")
	}

	return &copied
}

func (i *Identity) withDefaults() *Identity {
	if i == nil {
		return nil
	}

	copied := *i
	if len(copied.Tokens) == 0 {
		copied.Tokens = []int{1}
	}

	return &copied
}

func (x *Proxmox) validate(path string, found *problem.List) {
	if x == nil {
		return
	}

	required(found, path+"region", x.Region, "the name of the Proxmox cluster")

	if x.CSI != nil || x.CloudController != nil {
		required(found, path+"endpoint", x.Endpoint, "the Proxmox API, such as https://10.0.0.2:8006")
	}

	if x.CSI == nil && len(x.StorageClasses) > 0 {
		found.Add(path+"storageClasses", nil, "are set without csi, which uses them; set csi")
	}

	for _, one := range []struct {
		path     string
		identity *Identity
	}{{path + "csi.", x.CSI}, {path + "cloudController.", x.CloudController}} {
		if one.identity != nil {
			required(found, one.path+"account", one.identity.Account, "a user's name without its realm")
		}
	}

	for i, class := range x.StorageClasses {
		at := fmt.Sprintf("%sstorageClasses[%d].", path, i)
		required(found, at+"name", class.Name, "its name")
		required(found, at+"datastore", class.Datastore, "the datastore, such as local-zfs")
	}
}

// providerID is what Kubernetes calls a machine.
func (x *Proxmox) providerID(vmid int) string { return fmt.Sprintf("proxmox://%s/%d", x.Region, vmid) }

// datastores are those of the storage classes, sorted.
func (x *Proxmox) datastores() []string {
	var names []string
	for _, class := range x.StorageClasses {
		names = append(names, class.Datastore)
	}

	slices.Sort(names)

	return slices.Compact(names)
}
