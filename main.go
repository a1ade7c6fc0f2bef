// Command talos-proxmox is the Pulumi program: from bare Proxmox VE hosts to working Talos Kubernetes clusters.
package main

import "talos-proxmox/stacks"

func main() {
	stacks.Run(stacks.Deploy)
}
