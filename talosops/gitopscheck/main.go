// Command gitopscheck judges the tree that Flux reconciles clusters from: offline, and against the plans of stacks.
package main

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"talos-proxmox/internal/cli"
	"talos-proxmox/internal/spec"
	"talos-proxmox/stacks"
)

func main() { cli.Main(newRoot()) }

func newRoot() *cobra.Command {
	root := &cobra.Command{Use: "gitopscheck", SilenceUsage: true, SilenceErrors: true}
	root.AddCommand(newTree(), newStack())

	return root
}

func newTree() *cobra.Command {
	var (
		folder     string
		withCharts bool
	)

	cmd := &cobra.Command{
		Use:   "tree REPOSITORY",
		Short: "Judge every cluster and every component of a repository's tree, offline but for --charts",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			found, err := checkTree(cmd.Context(), args[0], folder, withCharts)
			if err != nil {
				return err
			}

			if len(found.problems) > 0 {
				return errors.New(strings.Join(found.problems, "\n"))
			}

			if !withCharts {
				found.unseen = []string{"charts and their values (--charts queries their repositories)"}
			}

			said := fmt.Sprintf("%s: %d clusters and %d components are fine\n",
				folder, len(found.clusters), len(found.components))
			for _, unseen := range found.unseen {
				said += "not checked: " + unseen + "\n"
			}

			_, err = fmt.Fprint(cmd.OutOrStdout(), said)

			return err
		},
	}
	cmd.Flags().StringVar(&folder, "folder", "gitops", "folder of the tree in the repository")
	cmd.Flags().BoolVar(&withCharts, "charts", false, "ask the repositories of charts for what releases install")

	return cmd
}

func newStack() *cobra.Command {
	var project, repository string

	cmd := &cobra.Command{
		Use:   "stack STACK",
		Short: "Compare the plan of a stack with what its clusters' GitOps paths need of the machines",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			content, err := os.ReadFile(filepath.Join(project, "Pulumi."+args[0]+".yaml"))
			if err != nil {
				return fmt.Errorf("unable to read the file of stack %q: %w", args[0], err)
			}

			plan, err := stacks.PlanUnconnected(args[0], content)
			if err != nil {
				return err
			}

			problems, err := checkStack(plan, repository)
			if err != nil {
				return err
			}

			if len(problems) > 0 {
				return errors.New(strings.Join(problems, "\n"))
			}

			for _, planned := range plan.Clusters {
				said := "has what its GitOps path needs"
				if planned.GitOps == nil {
					said = "has no gitops in the stack file: nothing was compared"
				}

				if _, err := fmt.Fprintf(cmd.OutOrStdout(), "stack %s: cluster %s %s\n", args[0], planned.Name, said); err != nil {
					return err
				}
			}

			return nil
		},
	}
	cmd.Flags().StringVar(&project, "project", ".", "folder of the stack's file")
	cmd.Flags().StringVar(&repository, "repository", ".", "folder of the repository that the clusters' GitOps paths are in")

	return cmd
}

// checkStack says what the clusters of a stack lack.
func checkStack(plan *spec.Plan, repository string) ([]string, error) {
	copied, err := os.MkdirTemp("", "gitopscheck-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(copied) //nolint:errcheck // a temporary folder

	t, err := openTree(repository, copied)
	if err != nil {
		return nil, err
	}

	var problems []string

	for _, planned := range plan.Clusters {
		if planned.GitOps == nil {
			continue
		}

		folder := path.Clean(planned.GitOps.Path)
		if !exists(repository, folder) {
			problems = append(problems, fmt.Sprintf("cluster %s: gitops.path %s is not in %s: name the folder of %s, "+
				"--repository ../fleet, or correct the path", planned.Name, folder, repository, planned.GitOps.URL))

			continue
		}

		c := t.resolve(folder)

		var needs []requirements

		read := []string{folder}

		for _, one := range c.components {
			if one.name != "" { // with requirements.yaml beside it
				read = append(read, path.Dir(one.folder))
			}

			r, err := readRequirements(t.root, one.folder)
			if err != nil {
				problems = append(problems, strings.ReplaceAll(err.Error(), t.root+"/", ""))
			}

			needs = append(needs, r)
		}

		c.judgeClasses()
		c.judgeDefaultClass(planned)
		c.judgeCopies(planned, needs)
		c.judgeVault(planned)
		c.judgeAddresses(planned)
		c.judgeKeys(planned)
		c.judgeTenants(planned)
		problems = slices.Concat(problems, t.judgeLinks(read...), c.problems, judgeStack(planned, needs))
	}

	return problems, nil
}
