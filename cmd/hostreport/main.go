// Command hostreport asks the Proxmox hosts of a stack what they are, and says whether they fit what the stack
// plans.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"talos-proxmox/internal/command"
	"talos-proxmox/stacks"
)

func main() { command.Main(newRoot()) }

func newRoot() *cobra.Command {
	var project, keyFile, talosops string

	cmd := &cobra.Command{
		Use:   "hostreport STACK [HOST…]",
		Short: "Report what a stack's Proxmox hosts are, and what blocks its plan",
		Long: `Asks the hosts that Pulumi.STACK.yaml names, over SSH and without changing anything, and prints for each:
hardware, boot loader, IOMMU, GPUs, storages, ZFS; what blocks the plan, with the command that fixes it;
what the next up changes; and advice on pools. It ends with status 1 where something blocks it or a host does
not answer. The host's key is that of the stack file; without --private-key-file the SSH agent is used.`,
		Example:       "  hostreport prod\n  hostreport --private-key-file ~/.ssh/pve dev pve1",
		Args:          cobra.MinimumNArgs(1),
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			content, err := os.ReadFile(filepath.Join(project, "Pulumi."+args[0]+".yaml"))
			if err != nil {
				return fmt.Errorf(
					"unable to read stack %q: %w; name a stack that has a file Pulumi.<stack>.yaml in %s", args[0], err, project,
				)
			}

			plan, err := stacks.PlanFile(args[0], content)
			if err != nil {
				return fmt.Errorf("the configuration of stack %q has problems:\n%w", args[0], err)
			}

			key := []byte{}
			if keyFile != "" {
				if key, err = os.ReadFile(keyFile); err != nil { //nolint:gosec // the user names the file
					return fmt.Errorf("unable to read the private key: %w", err)
				}
			}

			text, err := stacks.HostReport(cmd.Context(), args[0], plan, args[1:], string(key), talosops)
			_, _ = fmt.Fprint(cmd.OutOrStdout(), text)

			return err
		},
	}
	cmd.Flags().StringVar(&project, "project", ".", "folder of the stack files")
	cmd.Flags().StringVar(&keyFile, "private-key-file", "", "private key for the hosts' shells (default: the SSH agent)")
	cmd.Flags().StringVar(&talosops, "talosops", ".bin/talosops", "path of talosops")

	return cmd
}
