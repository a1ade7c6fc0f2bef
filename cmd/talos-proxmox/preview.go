package main

import (
	"github.com/spf13/cobra"
)

func newPreview(a *app) *cobra.Command {
	var options planOptions

	cmd := &cobra.Command{
		Use:   "preview STACK",
		Short: "Show what up would do, with the policies",
		Long: `Runs pulumi preview with the project's policies. For stacks with GitOps it first compares the machines with
the needs of the GitOps tree.`,
		Example:           "  talos-proxmox preview prod\n  talos-proxmox preview dev --on-lab",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completion(nil),
		RunE: func(cmd *cobra.Command, args []string) error {
			preview, err := a.preparePreview(cmd, args[0], options)
			if err != nil {
				return err
			}

			return preview(cmd.OutOrStdout(), false)
		},
	}
	options.flags(cmd)

	return cmd
}
