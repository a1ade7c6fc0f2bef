package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func newDeploy(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "deploy STACK",
		Short: "Bring a stack up on its own Proxmox without asking, judged by the policies",
		Long: `Runs pulumi up --refresh --yes with the project's policies: what a pipeline does after guard. Stacks
whose clusters have a GitOps path are told first what their machines lack of what it needs.`,
		Example:           "  talos-proxmox guard prod && talos-proxmox deploy prod",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completion(nil),
		RunE: func(cmd *cobra.Command, args []string) error {
			if a.OnLab(args[0]) {
				return fmt.Errorf("stack %s has no Proxmox of its own: make up brings it up; name another stack", args[0])
			}

			e, err := a.prepare(cmd, args[0])
			if err != nil {
				return err
			}

			if err := e.run(cmd, cmd.OutOrStdout(), "up", "--yes", "--non-interactive", "--refresh"); err != nil {
				return fmt.Errorf("%w. Was this run, or one before it, killed? talos-proxmox recover %s removes what it left; "+
					"then talos-proxmox deploy %[2]s resumes. Would it create machines that run already? Then the state was lost, "+
					"or is in another backend: docs/recovery.md", err, args[0])
			}

			return nil
		},
	}
}
