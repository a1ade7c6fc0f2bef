// Command stackreport writes what a stack will consist of, from its stack file alone: as Markdown, and as a page with a
// picture of hosts and machines.
package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"talos-proxmox/internal/command"
	"talos-proxmox/internal/report"
	"talos-proxmox/stacks"
)

func main() { command.Main(newRoot()) }

func newRoot() *cobra.Command {
	var project, out string

	cmd := &cobra.Command{
		Use:           "stackreport STACK",
		Short:         "Write what a stack will consist of, as Markdown and as an HTML page",
		Long:          "Writes STACK.md and STACK.html to the output folder. Both follow from Pulumi.STACK.yaml alone: no host and no engine is asked, and no secret is read.",
		Example:       "  stackreport prod\n  stackreport --out /tmp/report dev",
		Args:          cobra.ExactArgs(1),
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			return write(cmd.OutOrStdout(), project, out, args[0])
		},
	}
	cmd.Flags().StringVar(&project, "project", ".", "folder of the stack files")
	cmd.Flags().StringVar(&out, "out", ".report", "folder that the report is written to")

	return cmd
}

// planned is what a stack file alone does not say.
var planned = []string{
	"Hosts are those of new machines: a running machine stays on its host, unless `nodes.<n>.host` sets another.",
}

func write(say io.Writer, project, out, stack string) error {
	content, err := os.ReadFile(filepath.Join(project, "Pulumi."+stack+".yaml"))
	if err != nil {
		return fmt.Errorf(
			"unable to read stack %q: %w; name a stack that has a file Pulumi.<stack>.yaml in %s", stack, err, project,
		)
	}

	plan, err := stacks.PlanUnconnected(stack, content)
	if err != nil {
		return fmt.Errorf("the configuration of stack %q has problems:\n%w", stack, err)
	}

	page, err := report.HTML(plan)
	if err != nil {
		return err
	}

	if err := os.MkdirAll(out, 0o700); err != nil {
		return fmt.Errorf("unable to make the report's folder: %w", err)
	}

	for name, text := range map[string][]byte{
		stack + ".md": []byte(report.Markdown(plan, planned)), stack + ".html": page,
	} {
		if err := os.WriteFile(filepath.Join(out, name), text, 0o600); err != nil {
			return fmt.Errorf("unable to write the report: %w", err)
		}
	}
	//nolint:errcheck // to the terminal
	fmt.Fprintf(say, "%s\n%s\n", filepath.Join(out, stack+".md"), filepath.Join(out, stack+".html"))

	return nil
}
