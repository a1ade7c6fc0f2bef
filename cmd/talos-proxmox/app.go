package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"talos-proxmox/internal/cli"
	"talos-proxmox/internal/offsite"
	"talos-proxmox/internal/operations"
	"talos-proxmox/internal/recovery"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/terminal"
	"talos-proxmox/stacks"
)

// app is shared by the commands.
type app struct{ cli.Project }

// Programs that commands run, in addition to the Pulumi CLI and talosops.
var (
	labProgram  = cli.Program{Name: "lab", Provides: "the embedded lab", BuildCommand: "make tools"}
	gitopsCheck = cli.Program{
		Name: "gitopscheck", Provides: "the libraries of Flux and of the API server", BuildCommand: "make stack-tools",
	}
	secretsImport = cli.Program{
		Name: "secretsimport", Provides: "the SOPS library", BuildCommand: "make build-secretsimport",
	}
	policyPack = cli.Program{Name: "pulumi-analyzer-policy-go", Provides: "the policies", BuildCommand: "make stack-tools"}
)

// readDeployed reads a deployed stack.
func (a *app) readDeployed(cmd *cobra.Command, name string) (operations.Deployed, error) {
	s, err := a.connect(cmd, name)
	if err != nil {
		return operations.Deployed{}, err
	}

	talosOps, err := a.TalosOps()
	if err != nil {
		return operations.Deployed{}, err
	}

	readDeployed, err := operations.ReadDeployed(cmd.Context(), pulumiOf(s), name, s.Folder, talosOps, cmd.ErrOrStderr())
	if err == nil && readDeployed.Plan.Backup.S3 != nil {
		readDeployed.OffSite = offsite.Connect(*readDeployed.Plan.Backup.S3, nil)
	}

	return readDeployed, err
}

// connect returns a stack whose Proxmox can be reached. For the embedded lab, it has the lab write the stack file with
// its addresses, and trusts its certificate authority.
func (a *app) connect(cmd *cobra.Command, name string) (cli.Stack, error) {
	if !a.OnLab(name) {
		return a.Stack(name)
	}

	path, err := a.runningLab(cmd, name)
	if err != nil {
		return cli.Stack{}, err
	}

	err = cli.Run(cmd.Context(), a.Folder, nil, cmd.OutOrStdout(), cmd.ErrOrStderr(), path, "configure", "--stack", name)
	if err != nil {
		return cli.Stack{}, err
	}

	s, err := a.Stack(name)
	if err != nil {
		return s, err
	}

	// The CLI and its plugins inherit it.
	if err := os.Setenv("SSL_CERT_FILE", filepath.Join(s.Folder, "trust.pem")); err != nil {
		return s, fmt.Errorf("unable to trust the lab's authority: %w", err)
	}

	return s, nil
}

// runningLab returns the program of the embedded lab, which a stack is on. A lab that was taken down is not started by
// a question about it.
func (a *app) runningLab(cmd *cobra.Command, stack string) (string, error) {
	path, err := labProgram.Find(a.Folder)
	if err != nil {
		return "", err
	}

	if cli.Run(cmd.Context(), a.Folder, nil, io.Discard, io.Discard, path, "status", "--quiet") != nil {
		return "", fmt.Errorf("the lab does not run: `.bin/lab start` starts it with what it has, `%s` also brings up stack %s",
			cli.LabUp(stack), stack)
	}

	return path, nil
}

// pulumiOf runs the Pulumi CLI for a stack.
func pulumiOf(s cli.Stack) recovery.Pulumi { return recovery.CLI(s.Pulumi, s.Folder, s.Environment...) }

// run runs one of the project's programs in the project's folder.
func (a *app) run(cmd *cobra.Command, program cli.Program, args ...string) error {
	path, err := program.Find(a.Folder)
	if err != nil {
		return err
	}

	return cli.Run(cmd.Context(), a.Folder, nil, cmd.OutOrStdout(), cmd.ErrOrStderr(), path, args...)
}

// startLab starts the embedded lab and returns its program. The output is discarded: a lab that runs already would
// report that on this command's standard output.
func (a *app) startLab(cmd *cobra.Command) (string, error) {
	path, err := labProgram.Find(a.Folder)
	if err != nil {
		return "", err
	}

	return path, cli.Run(cmd.Context(), a.Folder, nil, io.Discard, cmd.ErrOrStderr(), path, "start")
}

// plan plans a stack from its stack file alone.
func (a *app) plan(
	name string, from func(string, []byte) (*spec.Plan, error),
) (*spec.Plan, error) {
	content, err := a.ReadFile(name)
	if err != nil {
		return nil, err
	}

	plan, err := from(cli.ShortName(name), content)
	if err != nil {
		return nil, fmt.Errorf("the configuration of stack %q has problems:\n%w", name,
			stacks.Located(err, cli.ShortName(name), content))
	}

	return plan, nil
}

// completion completes the name of a stack, then names from its plan.
func (a *app) completion(more func(*spec.Plan) []string) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return a.Stacks(), cobra.ShellCompDirectiveNoFileComp
		}

		if more == nil {
			return nil, cobra.ShellCompDirectiveDefault
		}

		plan, err := a.plan(args[0], stacks.PlanUnconnected)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}

		names := slices.DeleteFunc(more(plan), func(name string) bool { return slices.Contains(args[1:], name) })

		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

func clusterNames(plan *spec.Plan) []string {
	names := make([]string, 0, len(plan.Clusters))
	for _, c := range plan.Clusters {
		names = append(names, c.Name)
	}

	return names
}

// addClusterFlag adds --cluster to a command about one cluster.
func addClusterFlag(cmd *cobra.Command, cluster *string) {
	cmd.Flags().StringVar(cluster, "cluster", "", "the cluster (default: the only one of the stack)")
}

// selectCluster returns the named cluster, or else the only one of a plan; empty if there are several.
func selectCluster(plan *spec.Plan, named string) string {
	if named == "" && len(plan.Clusters) == 1 {
		return plan.Clusters[0].Name
	}

	return named
}

// printLines prints lines to standard output.
func printLines(cmd *cobra.Command, lines ...string) {
	for _, line := range lines {
		_, _ = fmt.Fprintln(cmd.OutOrStdout(), line)
	}
}

// fit wraps the lines of a text for the terminal that a command prints to.
func fit(cmd *cobra.Command, text string) string {
	return terminal.Fit(text, terminal.Of(cmd.OutOrStdout()).Width())
}

// backupCommand returns the body of a command that backs up a stack's clusters and prints the lines it returns.
func (a *app) backupCommand(
	do func(context.Context, operations.Backups, []string) ([]string, error),
) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		deployed, err := a.readDeployed(cmd, args[0])
		if err != nil {
			return err
		}

		lines, err := do(cmd.Context(), operations.Backups{Deployed: deployed}, args[1:])
		printLines(cmd, lines...)

		return err
	}
}
