// Command policy is the CrossGuard policy pack of talos-proxmox: `pulumi preview --policy-pack policy`, and `pulumi up` likewise.
package main

import (
	"fmt"
	"os"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi/policyx"

	"proxmox-talos/policy/rules"
)

func main() {
	if err := policyx.Main(rules.NewPack); err != nil {
		fmt.Fprintln(os.Stderr, "policy:", err)
		os.Exit(1)
	}
}
