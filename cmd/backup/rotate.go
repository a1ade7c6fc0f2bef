package main

import (
	"time"

	"github.com/spf13/cobra"
)

func newRotateCA(f *flags) *cobra.Command {
	var cluster string

	cmd := &cobra.Command{
		Use:   "rotate-ca STACK",
		Short: "Replace the certificate authority of a cluster's Talos API",
		Long: `Replaces the certificate authority of the Talos API of a cluster that runs: all machines accept a new one, then
issue with it, then forget the old one, as talosctl rotate-ca does. Nothing restarts. Every machine has to answer before
anything is changed. The new authority is in the state, encrypted, before a machine knows it. It may be interrupted and
repeated; pulumi up refuses to run until it is done. Run pulumi up afterwards.`,
		Example: "  backup rotate-ca prod\n  backup rotate-ca prod --cluster home",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := f.backups(cmd, args[0])
			if err != nil {
				return err
			}

			if cluster == "" && len(b.Plan.Clusters) == 1 {
				cluster = b.Plan.Clusters[0].Name
			}

			if err := b.RotateAuthority(cmd.Context(), cluster, time.Now()); err != nil {
				return err
			}

			printLines(cmd, []string{cluster + ": the Talos API has a new certificate authority; bring the stack up now, and " +
				"export its machine secrets anew"})

			return nil
		},
	}
	cmd.Flags().StringVar(&cluster, "cluster", "", "which cluster (default: the only one of the stack)")

	return cmd
}
