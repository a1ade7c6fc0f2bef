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

	args := *p
	args.Endpoint = strings.TrimSuffix(d.proxmox("endpoint"), "/")
	args.Insecure, _ = strconv.ParseBool(d.proxmox("insecure"))

	return &args
}
