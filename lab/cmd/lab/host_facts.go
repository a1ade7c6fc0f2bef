package main

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"talos-proxmox/lab/control"
	"talos-proxmox/lab/engine"
	"talos-proxmox/stacks"
)

func newHostFacts(f *folders) *cobra.Command {
	var stack string

	cmd := &cobra.Command{
		Use:   "facts [NAME…]",
		Short: "Report facts of hosts over SSH, and what blocks the stack's plan",
		RunE: func(cmd *cobra.Command, names []string) error {
			status, err := control.NewClient(f.dir).Status(cmd.Context())
			if err != nil {
				return err
			}

			file, err := engine.ReadStack(f.project, stack)
			if err != nil {
				return err
			}

			target, err := engine.NewTarget(stack, file, status.Network, status.Connection)
			if err != nil {
				return err
			}

			report, err := stacks.HostReport(
				cmd.Context(), stack, target.Plan, names, status.Connection.PrivateKey,
				filepath.Join(f.project, ".bin", "talosops"),
			)
			fmt.Fprint(cmd.OutOrStdout(), report) //nolint:errcheck // to the terminal

			return err
		},
	}
	cmd.Flags().StringVar(&stack, "stack", "lab", "the stack: Pulumi.<stack>.yaml")

	return cmd
}
