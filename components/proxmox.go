package components

import (
	"fmt"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/spec"
)

type (
	// Proxmox is the topology of a cluster's nodes on Proxmox, and the Proxmox accounts of its software.
	//
	// Its fields, from their own comments (make schema):
	//   - Region string: The name of the Proxmox cluster, which cannot change while nodes exist.
	//   - Endpoint string: The URL of the Proxmox API for software in the cluster, without a path:
	//     https://10.0.0.2:8006. Required with accounts.
	//   - Insecure bool: Whether that software accepts any certificate of the API. Default: false.
	//   - CA string: The certificate authority of the API's certificate, as PEM text. Default: none, the authorities
	//     that the software trusts by itself.
	//   - ExistingRoles bool: Give accounts the roles of docs/permissions.md, which an administrator has created,
	//     instead of their own. Default: false.
	//   - CSI *Identity: The account of the Proxmox CSI plugin. Default: none.
	//   - CloudController *Identity: The account of the Proxmox cloud controller manager. Default: none.
	//   - StorageClasses []StorageClass: Storage classes for the CSI plugin, which may use their datastores. Default:
	//     none.
	Proxmox = spec.Proxmox
	// Identity is the Proxmox account of a cluster's software.
	//
	// Its fields, from their own comments (make schema):
	//   - Account string: The user's name without its realm, and the prefix of its roles' names.
	//   - Tokens []int: The numbers of its tokens; the cluster gets the last one. To rotate: add a number, run `up`,
	//     restart the software, remove the first number. Default: 1.
	Identity = spec.Identity
	// StorageClass is a storage class on a datastore.
	//
	// Its fields, from their own comments (make schema):
	//   - Name string: The storage class's name.
	//   - Datastore string: The datastore, with the content type `images`. Volumes on a datastore that hosts do not
	//     share stay on their host.
	//   - FSType string: The file system of new volumes.
	//   - SSD bool: Attach volumes as solid-state disks, with discard.
	//   - ReclaimPolicy string: What happens to a volume when its claim is deleted: Delete or Retain.
	//   - Default bool: Make it the default storage class.
	StorageClass = spec.StorageClass
)

func validateProxmox(x *Proxmox, path string, found *problem.List) {
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

// providerID returns the providerID of a node for its VM.
func providerID(x *Proxmox, vmid int) string { return fmt.Sprintf("proxmox://%s/%d", x.Region, vmid) }
