package main

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"
)

func newGitOps(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "gitops", Short: "Check the tree that Flux reconciles clusters from, and make its key"}
	cmd.AddCommand(newGitOpsCheck(a), newGitOpsKey(a))

	return cmd
}

func newGitOpsCheck(a *app) *cobra.Command {
	var (
		repository string
		withCharts bool
	)

	cmd := &cobra.Command{
		Use:   "check STACK",
		Short: "Judge gitops/ offline, and say what a stack's machines lack of what its clusters' GitOps paths need",
		Long: `Judges every cluster and every component of the repository's gitops/, then compares the stack's plan
with what the GitOps paths of its clusters need of machines. No host, no cluster and no engine is asked. With --charts
the repositories of Helm charts are: whether they have the versions that releases name, and which values those do not
know. One that does not answer within half a minute is a finding.`,
		Example: "  talos-proxmox gitops check prod\n" +
			"  talos-proxmox gitops check prod --repository ../fleet --charts",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completion(nil),
		RunE: func(cmd *cobra.Command, args []string) error {
			if repository == "" {
				repository = a.Folder
			}

			return a.checkGitOps(cmd, args[0], repository, withCharts)
		},
	}
	cmd.Flags().StringVar(
		&repository, "repository", "", "folder of the repository that the clusters' GitOps paths are in (default: the project)",
	)
	cmd.Flags().BoolVar(&withCharts, "charts", false, "ask the repositories of Helm charts for what releases install")

	return cmd
}

// checkGitOps judges a repository's tree, and a stack's plan by it; withCharts asks the network for charts.
func (a *app) checkGitOps(cmd *cobra.Command, stack, repository string, withCharts bool) error {
	repository, err := filepath.Abs(repository)
	if err != nil {
		return fmt.Errorf("unable to find the repository: %w", err)
	}

	tree := []string{"tree", repository}
	if withCharts {
		tree = append(tree, "--charts")
	}

	if err := a.run(cmd, gitopsCheck, tree...); err != nil {
		return err
	}

	return a.run(cmd, gitopsCheck, "stack", "--repository", repository, stack)
}
