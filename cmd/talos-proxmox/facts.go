package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"talos-proxmox/internal/spec"
	"talos-proxmox/stacks"
)

func newFacts(a *app) *cobra.Command {
	var keyFile string

	cmd := &cobra.Command{
		Use:   "facts STACK [HOST…]",
		Short: "Report facts of a stack's Proxmox hosts, and what blocks its plan",
		Long: `Queries the hosts of Pulumi.STACK.yaml over SSH, without changing anything, and prints for each: hardware,
boot loader, IOMMU, GPUs, storages, ZFS; problems that block the plan, with the command that fixes them; what the next
up changes; and advice on pools. It exits with status 1 if a problem blocks the plan or a host does not answer. The
host key is that of the stack file; without --private-key-file the SSH agent is used.`,
		Example:           "  talos-proxmox facts prod\n  talos-proxmox facts --private-key-file ~/.ssh/pve dev pve1",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.completion(hostNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			plan, key, err := a.hostAccess(cmd, args[0])
			if err != nil {
				return err
			}

			if keyFile != "" {
				content, err := os.ReadFile(keyFile) //nolint:gosec // the user names the file
				if err != nil {
					return fmt.Errorf("unable to read the private key: %w", err)
				}

				key = string(content)
			}

			talosOps, err := a.TalosOps()
			if err != nil {
				return err
			}

			text, err := stacks.HostReport(cmd.Context(), args[0], plan, args[1:], key, talosOps)
			_, _ = fmt.Fprint(cmd.OutOrStdout(), text)

			return err
		},
	}
	cmd.Flags().StringVar(&keyFile, "private-key-file", "", "private key for the hosts' shells (default: the SSH agent)")

	return cmd
}

// hostAccess returns the plan with a stack's hosts, and the embedded lab's private key for their shells; other stacks
// use the user's key.
func (a *app) hostAccess(cmd *cobra.Command, stack string) (*spec.Plan, string, error) {
	if a.OnLab(stack) {
		deployed, err := a.readDeployed(cmd, stack)

		return deployed.Plan, deployed.PrivateKey, err
	}

	plan, err := a.plan(stack, stacks.PlanFile)

	return plan, "", err
}
