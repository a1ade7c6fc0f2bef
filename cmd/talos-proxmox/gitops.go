package main

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"
)

func newGitOps(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "gitops", Short: "Look at the tree that Flux reconciles clusters from"}
	cmd.AddCommand(newGitOpsCheck(a))

	return cmd
}

func newGitOpsCheck(a *app) *cobra.Command {
	var repository string

	cmd := &cobra.Command{
		Use:   "check STACK",
		Short: "Judge gitops/ offline, and say what a stack's machines lack of what its clusters' GitOps paths need",
		Long: `Judges every cluster and every component of the repository's gitops/, then compares the stack's plan
with what the GitOps paths of its clusters need of machines. No host, no cluster and no engine is asked.`,
		Example: "  talos-proxmox gitops check prod\n" +
			"  talos-proxmox gitops check prod --repository ../fleet",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completion(nil),
		RunE: func(cmd *cobra.Command, args []string) error {
			if repository == "" {
				repository = a.Folder
			}

			return a.checkGitOps(cmd, args[0], repository)
		},
	}
	cmd.Flags().StringVar(
		&repository, "repository", "", "folder of the repository that the clusters' GitOps paths are in (default: the project)",
	)

	return cmd
}

// checkGitOps judges a repository's tree, and a stack's plan by it.
func (a *app) checkGitOps(cmd *cobra.Command, stack, repository string) error {
	repository, err := filepath.Abs(repository)
	if err != nil {
		return fmt.Errorf("unable to find the repository: %w", err)
	}

	if err := a.run(cmd, gitopsCheck, "tree", repository); err != nil {
		return err
	}

	return a.run(cmd, gitopsCheck, "stack", "--repository", repository, stack)
}
