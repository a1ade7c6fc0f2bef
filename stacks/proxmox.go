package stacks

import (
	"strconv"
	"strings"

	"talos-proxmox/components"
	"talos-proxmox/internal/spec"
)

// proxmoxArgs returns a cluster's settings for Proxmox; nil = none. Software in the cluster uses the endpoint and TLS
// verification of this program.
func (d *deployment) proxmoxArgs(p *spec.Proxmox) *components.Proxmox {
	if p == nil {
		return nil
	}

	args := *p
	args.Endpoint = strings.TrimSuffix(d.proxmox("endpoint"), "/")
	args.Insecure, _ = strconv.ParseBool(d.proxmox("insecure"))

	return &args
}
