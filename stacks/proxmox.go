package stacks

import (
	"strconv"
	"strings"

	"talos-proxmox/components"
	"talos-proxmox/internal/spec"
)

// proxmoxArgs are what a cluster knows of Proxmox; nil = nothing. Software in the cluster calls the API where this
// program does, and trusts it alike.
func (d *deployment) proxmoxArgs(p *spec.Proxmox) *components.Proxmox {
	if p == nil {
		return nil
	}

	insecure, _ := strconv.ParseBool(d.proxmox("insecure"))
	args := &components.Proxmox{
		Region: p.Region, Endpoint: strings.TrimSuffix(d.proxmox("endpoint"), "/"), Insecure: insecure, CA: p.CA,
		ExistingRoles: p.ExistingRoles, CSI: identityArgs(p.CSI), CloudController: identityArgs(p.CloudController),
	}

	for _, class := range p.StorageClasses {
		args.StorageClasses = append(args.StorageClasses, components.StorageClass{
			Name: class.Name, Datastore: class.Datastore, FSType: class.FSType, SSD: class.SSD,
			ReclaimPolicy: class.ReclaimPolicy, Default: class.Default,
		})
	}

	return args
}

func identityArgs(i *spec.Identity) *components.Identity {
	if i == nil {
		return nil
	}

	return &components.Identity{Account: i.Account, Tokens: i.Tokens}
}
