// Talosops does at apply time what no Pulumi provider does; each verb reads one JSON request on standard input, so that
// no secret is ever an argument.
package main

import (
	"github.com/spf13/cobra"

	"talos-proxmox/internal/cli"
)

func main() { cli.Main(newRoot()) }

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:               "talosops",
		Short:             "Operations on running Talos clusters, for Pulumi programs and people",
		SilenceUsage:      true,
		SilenceErrors:     true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	root.AddCommand(
		newBootstrap(), newMark(), newWait(), newVersions(), newFacts(), newSettle(), newRun(),
		newSnapshot(), newRestore(), newChange(), newStatus(), newLeave(), newUpgrade(), newKubernetes(),
		newProxmox(), newCNI(), newGitOps(), newReconciled(), newRotate(), newHold(),
	)

	return root
}
