package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"talos-proxmox/internal/cli"
	"talos-proxmox/stacks"
)

func newDeployments(a *app) *cobra.Command {
	var (
		repository, pool string
		push, previews   bool
	)

	cmd := &cobra.Command{
		Use:   "deployments STACK",
		Short: "Set up Pulumi Deployments for a stack",
		Long: `Configures Pulumi Deployments to deploy the stack from the repository's main branch, on your own runner
pool, after the guard. The code of a pull request runs in its preview, with the secrets of the stack: --preview-prs is
only for stacks without protect.`,
		Example: "  talos-proxmox deployments prod --repository owner/name --pool 0f1e…\n" +
			"  talos-proxmox deployments dev --repository owner/name --pool 0f1e… --push",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completion(nil),
		RunE: func(cmd *cobra.Command, args []string) error {
			stack := args[0]
			if previews && a.protected(stack) {
				return fmt.Errorf("--preview-prs: %s has protect: true, or cannot be read. A pull request runs its own code with "+
					"the secrets of the stack that it previews: name a stack without protect, with a Proxmox token and a runner pool "+
					"of its own (docs/pipelines.md#pulumi-deployments)", a.File(stack))
			}

			s, err := a.Stack(stack)
			if err != nil {
				return err
			}

			return cli.Run(cmd.Context(), s.Folder, nil, cmd.OutOrStdout(), cmd.ErrOrStderr(), s.Pulumi,
				"deployment", "settings", "edit", "--stack", stack, "--github-repo", repository, "--branch", "main",
				"--folder", ".", "--runner-pool", pool, fmt.Sprintf("--preview-prs=%t", previews),
				fmt.Sprintf("--push-to-deploy=%t", push), "--pre-run-command", "make stack-tools",
				"--pre-run-command", `.bin/talos-proxmox preview `+stack+` --refresh --approve "$APPROVE"`,
				"--env", "PULUMI_PARALLEL="+parallel)
		},
	}
	cmd.Flags().StringVar(&repository, "repository", "", "the repository on GitHub: owner/name")
	cmd.Flags().StringVar(&pool, "pool", "", "id of your runner pool")
	cmd.Flags().BoolVar(&push, "push", false, "deploy on every push")
	cmd.Flags().BoolVar(&previews, "preview-prs", false, "preview pull requests")

	for _, name := range []string{"repository", "pool"} {
		_ = cmd.MarkFlagRequired(name) // the flag exists
	}

	return cmd
}

// protected reports whether a stack's machines are protected, or its file cannot be planned.
func (a *app) protected(stack string) bool {
	plan, err := a.plan(stack, stacks.PlanUnconnected)

	return err != nil || plan.Protect
}
