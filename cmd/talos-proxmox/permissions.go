package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"talos-proxmox/internal/permissions"
	"talos-proxmox/internal/preflight"
	"talos-proxmox/stacks"
)

func newPermissions(a *app) *cobra.Command {
	var release int

	cmd := &cobra.Command{
		Use:   "permissions STACK",
		Short: "Print the commands that create a stack's API token and its roles on Proxmox",
		Long: `Prints shell commands for root on a Proxmox host, which create the user ` + permissions.User + ` with a
token, and only the roles that the stack file needs. pveum prints the token once. docs/permissions.md explains the
roles. The command itself queries and changes nothing.`,
		Example: "  talos-proxmox permissions prod\n" +
			"  ssh root@10.0.0.2 \"set -e; $(talos-proxmox permissions prod)\"",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completion(nil),
		RunE: func(cmd *cobra.Command, args []string) error {
			if release < permissions.OldestPVE || release > permissions.NewestPVE {
				return fmt.Errorf("--proxmox %d: the roles are defined for Proxmox VE %d and %d; give one of these", release,
					permissions.OldestPVE, permissions.NewestPVE)
			}

			plan, err := a.plan(args[0], stacks.PlanUnconnected)
			if err != nil {
				return err
			}

			for _, role := range preflight.Roles(plan) {
				printLines(cmd, role.Commands(release))
			}

			return nil
		},
	}
	cmd.Flags().IntVar(&release, "proxmox", permissions.NewestPVE, "the major version of Proxmox VE")

	return cmd
}
