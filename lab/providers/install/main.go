// Command install installs the published provider plugins that the program's SDKs belong to, with the Pulumi CLI on
// PATH, unless they are installed.
package main

import (
	"fmt"
	"os"
	"os/exec"

	"talos-proxmox/lab/providers"
)

func main() {
	for _, plugin := range providers.Missing() {
		cmd := exec.Command("pulumi", plugin.InstallArguments()...) //nolint:gosec // the table's own names
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr

		if err := cmd.Run(); err != nil {
			fmt.Fprintf(os.Stderr, "unable to install the plugin %s: %v\n", plugin, err)
			os.Exit(1)
		}
	}
}
