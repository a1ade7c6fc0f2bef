// Command pulumi-resource-talos-proxmox is the Pulumi plugin that serves the components to programs in other languages.
// Engines start it: `pulumi package add <repository>/cmd/pulumi-resource-talos-proxmox` adds it to a program, see
// docs/components.md.
package main

import (
	_ "embed"
	"fmt"
	"os"

	"talos-proxmox/internal/plugin"
)

// schema is written by `make schema`.
//
//go:embed schema.json
var schema string

func main() {
	if err := plugin.Run(schema); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
