package main

import (
	"time"

	"github.com/spf13/cobra"

	"talos-proxmox/stacks"
)

func newRotateCA(a *app) *cobra.Command {
	var cluster string

	cmd := &cobra.Command{
		Use:   "rotate-ca STACK",
		Short: "Replace the certificate authority of a cluster's Talos API",
		Long: `Replaces the certificate authority of the Talos API of a cluster that runs: all machines accept a new
one, then issue with it, then forget the old one, as talosctl rotate-ca does. Nothing restarts. Every machine has to
answer before anything is changed. The new authority is in the state, encrypted, before a machine knows it. It may
be interrupted and repeated; pulumi up refuses to run until it is done. Run pulumi up afterwards.`,
		Example:           "  talos-proxmox secrets rotate-ca prod\n  talos-proxmox secrets rotate-ca prod --cluster home",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completion(nil),
		RunE: func(cmd *cobra.Command, args []string) error {
			deployed, err := a.deployed(cmd, args[0])
			if err != nil {
				return err
			}

			cluster = only(deployed.Plan, cluster)
			if err := (stacks.Backups{Deployed: deployed}).RotateAuthority(cmd.Context(), cluster, time.Now()); err != nil {
				return err
			}

			printLines(cmd, cluster+": the Talos API has a new certificate authority; bring the stack up now, and "+
				"export its machine secrets anew")

			return nil
		},
	}
	clusterFlag(cmd, &cluster)

	return cmd
}
