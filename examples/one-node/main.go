// Command one-node is a Pulumi program that creates a cluster of one node with the components.
package main

import (
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/examples/one-node/cluster"
)

func main() { pulumi.Run(cluster.OneNode) }
