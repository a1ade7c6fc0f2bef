package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"talos-proxmox/internal/cli"
	"talos-proxmox/stacks"
)

func newStatus(a *app) *cobra.Command {
	var (
		output cli.Output
		maxAge string
	)

	cmd := &cobra.Command{
		Use:   "status STACK [CLUSTER…]",
		Short: "Say how a stack's clusters are, for people and for monitoring",
		Long: `Asks each cluster once: members of etcd, versions, readiness and GPUs per node, machine configurations
compared with those that were applied last, certificates, the newest snapshot of etcd; see talosops status --help.
Proxmox is asked whether it takes the stack's credentials, and when they end. It waits for nothing, and a part that
is down hides nothing of the rest. It reads the stack's configuration and state, changes neither, takes no lock, and
shows no secret.

It prints a table for each cluster, with --output json a line. Exit status: 0 all is well, 1 something needs care, 2
a cluster could not be asked.`,
		Example: "  talos-proxmox status prod\n" +
			"  talos-proxmox status prod home --output json | jq -r '.care[].problem'",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.completion(clusterNames),
		Annotations:       cli.OtherErrors(stacks.StatusUnknown),
		RunE: func(cmd *cobra.Command, args []string) error {
			deployed, err := a.deployed(cmd, args[0])
			if err != nil {
				return err
			}

			s := stacks.Status{Deployed: deployed, MaxAge: maxAge, Proxmox: deployed.Proxmox()}
			status, err := s.Print(cmd.Context(), cmd.OutOrStdout(), output == cli.JSON, args[1:]...)

			switch {
			case err != nil:
				return err
			case status == stacks.StatusCare:
				return cli.WithStatus(status, fmt.Errorf("stack %s needs care", args[0]))
			case status != 0:
				return cli.WithStatus(status, fmt.Errorf("not every cluster of stack %s answers", args[0]))
			}

			return nil
		},
	}
	output.Flag(cmd)
	cmd.Flags().StringVar(&maxAge, "backup-age", "48h", "how old the newest snapshot of etcd may be; empty = any age")

	return cmd
}
