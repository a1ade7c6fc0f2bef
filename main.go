// Command talos-proxmox is the Pulumi program: from bare Proxmox VE hosts to working Talos Kubernetes clusters.
package main

import (
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/stacks"
)

func main() {
	pulumi.Run(stacks.Deploy)
}
