// Command gitopscheck checks the tree that Flux reconciles clusters from: offline, and against the plans of stacks.
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
	root.AddCommand(newTreeCommand(), newStackCommand())

	return root
}

func newTreeCommand() *cobra.Command {
	var (
		folder     string
		withCharts bool
	)

	cmd := &cobra.Command{
		Use:   "tree REPOSITORY",
		Short: "Check every cluster and every component of a repository's tree, offline without --charts",
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
				found.unchecked = []string{"charts and their values (--charts queries their repositories)"}
			}

			output := fmt.Sprintf("%s: %d clusters and %d components are fine\n",
				folder, len(found.clusters), len(found.components))
			for _, unchecked := range found.unchecked {
				output += "not checked: " + unchecked + "\n"
			}

			_, err = fmt.Fprint(cmd.OutOrStdout(), output)

			return err
		},
	}
	cmd.Flags().StringVar(&folder, "folder", "gitops", "folder of the tree in the repository")
	cmd.Flags().BoolVar(&withCharts, "charts", false, "download and check the charts of releases")

	return cmd
}

func newStackCommand() *cobra.Command {
	var project, repository string

	cmd := &cobra.Command{
		Use:   "stack STACK",
		Short: "Compare the plan of a stack with the requirements of its clusters' GitOps paths",
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
				result := "has what its GitOps path needs"
				if planned.GitOps == nil {
					result = "has no gitops in the stack file: nothing was compared"
				}

				_, err := fmt.Fprintf(cmd.OutOrStdout(), "stack %s: cluster %s %s\n", args[0], planned.Name, result)
				if err != nil {
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

// checkStack returns what the clusters of a stack and their GitOps paths lack.
func checkStack(plan *spec.Plan, repository string) ([]string, error) {
	workDir, err := os.MkdirTemp("", "gitopscheck-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(workDir) //nolint:errcheck // a temporary folder

	t, err := copyTree(repository, workDir)
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

		folders := []string{folder}

		for _, comp := range c.components {
			if comp.name != "" { // with requirements.yaml beside it
				folders = append(folders, path.Dir(comp.folder))
			}

			r, err := readRequirements(t.root, comp.folder)
			if err != nil {
				problems = append(problems, strings.ReplaceAll(err.Error(), t.root+"/", ""))
			}

			needs = append(needs, r)
		}

		c.checkStorageClasses()
		c.checkDefaultClass(planned)
		c.checkReplicas(planned, needs)
		c.checkVault(planned)
		c.checkAddresses(planned)
		c.checkKeys(planned)
		c.checkTenants(planned)
		problems = slices.Concat(problems, t.checkLinks(folders...), c.problems, checkMachines(plan.Backup, planned, needs))
	}

	return problems, nil
}
