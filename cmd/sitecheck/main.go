// Command sitecheck compares a stack with what its Proxmox and the Image Factory have, before anything is made.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"talos-proxmox/internal/command"
	"talos-proxmox/internal/recovery"
	"talos-proxmox/stacks"
)

func main() { command.Main(newRoot()) }

func newRoot() *cobra.Command {
	var project, pulumi string

	cmd := &cobra.Command{
		Use:   "sitecheck STACK",
		Short: "Compare a stack with what its Proxmox and the Image Factory have",
		Long: `Reads the stack's configuration and state, and asks Proxmox's API and the Image Factory what every preview asks
them: the credentials and what they may do, hosts, quorum, datastores, bridges, VMIDs and names that are taken, PCI
mappings, resource pools, and the Talos release of images that are still to be downloaded. It prints what is fine and
what is not, host by host, and ends with status 1 where something blocks it or Proxmox does not answer.

It changes nothing, takes no lock of the state, and shows no secret.`,
		Example:       "  sitecheck prod",
		Args:          cobra.ExactArgs(1),
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := filepath.Abs(pulumi)
			if err != nil {
				return fmt.Errorf("unable to find the Pulumi CLI: %w", err)
			}

			check, err := stacks.ReadCheck(cmd.Context(), recovery.CLI(path, project), args[0], os.Getenv)
			if err != nil {
				return err
			}

			text, err := check.Report(cmd.Context())
			_, _ = fmt.Fprint(cmd.OutOrStdout(), text)

			return err
		},
	}
	cmd.Flags().StringVar(&project, "project", ".", "folder of Pulumi.yaml")
	cmd.Flags().StringVar(&pulumi, "pulumi", ".bin/pulumi", "path of the Pulumi CLI")

	return cmd
}
