package main

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"
)

func newGitOps(a *app) *cobra.Command {
	return parent("gitops", "Check the tree that Flux reconciles, and create its key", newGitOpsCheck(a), newGitOpsKey(a))
}

func newGitOpsCheck(a *app) *cobra.Command {
	var (
		repository string
		withCharts bool
	)

	cmd := &cobra.Command{
		Use:   "check STACK",
		Short: "Check gitops/ offline, and whether a stack's machines meet its needs",
		Long: `Checks every cluster and every component of the repository's gitops/, then compares the stack's plan with
the needs of its clusters' GitOps paths. It queries no host, no cluster and no engine. With --charts it queries the
repositories of Helm charts: whether they have the versions of the releases, and which values these would ignore. A
repository that does not answer within half a minute is reported as a problem.`,
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
		&repository, "repository", "", "folder of the repository with the clusters' GitOps paths (default: the project)",
	)
	cmd.Flags().BoolVar(&withCharts, "charts", false, "query the repositories of Helm charts")

	return cmd
}

// checkGitOps checks a repository's GitOps tree, and a stack's plan against it; withCharts queries chart repositories.
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
