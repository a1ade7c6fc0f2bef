package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"talos-proxmox/internal/permissions"
	"talos-proxmox/internal/site"
	"talos-proxmox/stacks"
)

func newPermissions(a *app) *cobra.Command {
	var release int

	cmd := &cobra.Command{
		Use:   "permissions STACK",
		Short: "Print the commands that give a stack's API token its rights on Proxmox",
		Long: `Prints shell commands for root on a Proxmox host: they make the user ` + permissions.User + ` with a token, and
the roles that the stack file needs, and no other. The token is printed once, by pveum. docs/permissions.md says what
each role is for. It asks nobody and changes nothing.`,
		Example: "  talos-proxmox permissions prod\n" +
			"  ssh root@10.0.0.2 \"set -e; $(talos-proxmox permissions prod)\"",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completion(nil),
		RunE: func(cmd *cobra.Command, args []string) error {
			if release < permissions.OldestPVE || release > permissions.NewestPVE {
				return fmt.Errorf("--proxmox %d: the roles are known of Proxmox VE %d and %d; give one of these", release,
					permissions.OldestPVE, permissions.NewestPVE)
			}

			plan, err := a.plan(args[0], stacks.PlanUnconnected)
			if err != nil {
				return err
			}

			for _, role := range site.Roles(plan) {
				printLines(cmd, role.Commands(release))
			}

			return nil
		},
	}
	cmd.Flags().IntVar(&release, "proxmox", permissions.NewestPVE, "the major version of Proxmox VE")

	return cmd
}
