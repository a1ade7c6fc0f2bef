package components

import (
	"fmt"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/spec"
)

type (
	// Proxmox is the topology of a cluster's nodes on Proxmox, and the Proxmox accounts of its software.
	Proxmox = spec.Proxmox
	// Identity is the Proxmox account of a cluster's software.
	Identity = spec.Identity
	// StorageClass is a storage class on a datastore.
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
