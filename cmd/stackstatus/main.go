// Command stackstatus asks the clusters of a stack how they are, and whether they are still what was planned.
package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"talos-proxmox/internal/command"
	"talos-proxmox/internal/recovery"
	"talos-proxmox/stacks"
)

func main() { command.Main(newRoot()) }

// flags are those of every command.
type flags struct{ command.Project }

func newRoot() *cobra.Command {
	var f flags

	root := &cobra.Command{
		Use:   "stackstatus",
		Short: "Ask a stack's clusters how they are",
		Long: `Asks the clusters of a stack how they are, and whether they are still what was planned.

It reads the stack's configuration and state, changes neither, takes no lock, and shows no secret.`,
		SilenceUsage:      true,
		SilenceErrors:     true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
		Annotations:       command.OtherErrors(stacks.StandingUnknown),
	}
	f.Flags(root)
	root.AddCommand(newStatus(&f), newDrift(&f))

	return root
}

func (f *flags) standing(cmd *cobra.Command, stack string) (stacks.Standing, error) {
	p, err := f.Absolute()
	if err != nil {
		return stacks.Standing{}, err
	}

	deployed, err := stacks.ReadDeployed(
		cmd.Context(), recovery.CLI(p.Pulumi, p.Folder), stack, p.Folder, p.TalosOps, cmd.ErrOrStderr(),
	)

	return stacks.Standing{Deployed: deployed}, err
}

func newStatus(f *flags) *cobra.Command {
	var (
		asJSON bool
		maxAge string
	)

	cmd := &cobra.Command{
		Use:   "status STACK [CLUSTER…]",
		Short: "Say how a stack's clusters are, for people and for monitoring",
		Long: `Asks each cluster once: members of etcd, versions, readiness and GPUs per node, machine configurations compared
with those that were applied last, certificates, the newest snapshot of etcd; see talosops status --help. It waits for
nothing, and a part that is down hides nothing of the rest.

It prints a table for each cluster, with --json a line. Exit status: 0 all is well, 1 something needs care, 2 a cluster
could not be asked.`,
		Example: "  stackstatus status prod\n  stackstatus status prod home --json | jq -r '.care[].problem'",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := f.standing(cmd, args[0])
			if err != nil {
				return err
			}

			s.MaxAge = maxAge

			status, err := s.Print(cmd.Context(), cmd.OutOrStdout(), asJSON, args[1:]...)

			switch {
			case err != nil:
				return err
			case status == stacks.StandingCare:
				return command.WithStatus(status, fmt.Errorf("stack %s needs care", args[0]))
			case status != 0:
				return command.WithStatus(status, fmt.Errorf("not every cluster of stack %s answers", args[0]))
			}

			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a line of JSON for each cluster in place of the table")
	cmd.Flags().StringVar(&maxAge, "backup-age", "48h", "how old the newest snapshot of etcd may be; empty = any age")

	return cmd
}

func newDrift(f *flags) *cobra.Command {
	return &cobra.Command{
		Use:   "drift STACK",
		Short: "Compare every node with the plan, for planreview",
		Long: `Asks every node what it runs (Talos, schematic, kubelet, API server) and which machine configuration it has,
and compares that with the stack's file and with what was applied last. Prints a line of JSON that planreview reads at
the end of a preview: {"drift": […]}. It names paths of machine configurations, and never a value.`,
		Example: "  stackstatus drift prod >> .plan/prod.json && planreview guard --expect-no-changes .plan/prod.json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := f.standing(cmd, args[0])
			if err != nil {
				return err
			}

			differences, err := s.Drift(cmd.Context())
			if err != nil {
				return err
			}

			if err := json.NewEncoder(cmd.OutOrStdout()).Encode(map[string]any{"drift": differences}); err != nil {
				return fmt.Errorf("unable to print the differences: %w", err)
			}

			return nil
		},
	}
}
