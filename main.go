// Command proxmox-talos is the Pulumi program: from bare Proxmox VE hosts to working Talos Kubernetes clusters.
package main

import (
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"proxmox-talos/stacks"
)

func main() {
	pulumi.Run(stacks.Deploy)
}
