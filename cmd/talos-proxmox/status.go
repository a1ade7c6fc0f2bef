package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"talos-proxmox/internal/cli"
	"talos-proxmox/internal/operations"
)

func newStatus(a *app) *cobra.Command {
	var (
		output cli.Output
		maxAge string
		repeat repeated
	)

	cmd := &cobra.Command{
		Use:   "status STACK [CLUSTER…]",
		Short: "Report the health of a stack's clusters, for people and for monitoring",
		Long: `Queries each cluster once: members of etcd, versions, readiness and GPUs per node, machine configurations
compared with those applied last, certificates, the newest snapshot of etcd; see talosops status --help. It also
checks whether Proxmox accepts the stack's credentials, and when they expire. It waits for nothing, and reports the
rest if a part is down. It reads the stack's configuration and state, changes neither, takes no lock, and shows no
secret.

It prints a table for each cluster, or one line with --output json. Exit status: 0 healthy, 1 problems, 2 a cluster
could not be queried.

With --watch it asks again and again, until Ctrl-C (exit status 0): a terminal is drawn on anew, into a pipe it prints
what has changed. With --serve it serves a page on this computer, with machines, hosts' load, certificates and backups,
and the steps of a run of talos-proxmox deploy. Both show the log of the last run in .run/.`,
		Example: "  talos-proxmox status prod\n  talos-proxmox status prod --watch\n  talos-proxmox status prod --serve\n" +
			"  talos-proxmox status prod home --output json | jq -r '.care[].problem'",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.completion(clusterNames),
		Annotations:       cli.OtherErrors(operations.StatusUnknown),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := repeat.check(cmd); err != nil {
				return err
			}

			if repeat.watch || repeat.serve {
				return repeat.run(a, cmd, args[0], args[1:], maxAge)
			}

			deployed, err := a.readDeployed(cmd, args[0])
			if err != nil {
				return err
			}

			s := operations.Status{Deployed: deployed, MaxAge: maxAge, Proxmox: deployed.Proxmox()}
			status, err := s.Print(cmd.Context(), cmd.OutOrStdout(), output == cli.JSON, args[1:]...)

			switch {
			case err != nil:
				return err
			case status == operations.StatusAttention:
				return cli.WithStatus(status, fmt.Errorf("stack %s needs care", args[0]))
			case status != 0:
				return cli.WithStatus(status, fmt.Errorf("not every cluster of stack %s answers", args[0]))
			}

			return nil
		},
	}
	output.Flag(cmd)
	repeat.flags(cmd)
	cmd.Flags().StringVar(&maxAge, "backup-age", "48h", "how old the newest snapshot of etcd may be; empty = any age")

	return cmd
}
