package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"talos-proxmox/internal/permissions"
	"talos-proxmox/internal/preflight"
	"talos-proxmox/stacks"
)

func newPermissions(a *app) *cobra.Command {
	var (
		release int
		narrow  bool
	)

	cmd := &cobra.Command{
		Use:   "permissions STACK",
		Short: "Print the commands that create a stack's API token and its roles on Proxmox",
		Long: `Prints shell commands for root on a Proxmox host, which create the user ` + permissions.User + ` with a
token, and only the roles that the stack file needs, on its own datastores and PCI mappings. pveum prints the token
once. docs/permissions.md explains the roles. With --narrow, the commands bring the rules of an existing account up to
date, for example after the stack file names another datastore, and remove rules for all datastores and mappings as in
earlier versions. The command itself queries and changes nothing.`,
		Example: "  talos-proxmox permissions prod\n  talos-proxmox permissions prod --narrow\n" +
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

			roles, places := preflight.Roles(plan), preflight.PlacesOf(plan)
			if narrow {
				printLines(cmd, permissions.Narrow(roles, release, places))

				return nil
			}

			for _, role := range roles {
				printLines(cmd, role.Commands(release, places))
			}

			return nil
		},
	}
	cmd.Flags().BoolVar(&narrow, "narrow", false, "the account exists: only roles and rules, and remove broader ones")
	cmd.Flags().IntVar(&release, "proxmox", permissions.NewestPVE, "the major version of Proxmox VE")

	return cmd
}
