// Command one-node is a Pulumi program outside of talos-proxmox: a cluster of one node, made of its components.
package main

import (
	"one-node/cluster"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
)

func main() { pulumi.Run(cluster.OneNode) }
