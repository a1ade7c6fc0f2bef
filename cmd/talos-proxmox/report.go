package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"talos-proxmox/internal/report"
	"talos-proxmox/internal/spec"
	"talos-proxmox/stacks"
)

func newReport(a *app) *cobra.Command {
	var folder string

	cmd := &cobra.Command{
		Use:   "report STACK",
		Short: "Describe the plan of a stack, as Markdown and HTML",
		Long: `Writes STACK.md, and STACK.html with a picture of hosts and machines, from Pulumi.STACK.yaml alone: it
queries no host and no engine, and reads no secret. It makes the checks of a preview for which the file suffices, such
as those of patches of machine configurations, and fails with all problems.`,
		Example:           "  talos-proxmox report prod\n  talos-proxmox report --folder /tmp/report dev",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completion(nil),
		RunE: func(cmd *cobra.Command, args []string) error {
			plan, err := a.plan(args[0], func(stack string, content []byte) (*spec.Plan, error) {
				return stacks.PlanChecked(cmd.Context(), stack, content)
			})
			if err != nil {
				return err
			}

			for _, warning := range plan.Warnings {
				_, _ = fmt.Fprintln(cmd.ErrOrStderr(), "warning:", warning)
			}

			return writeReport(cmd.OutOrStdout(), folder, args[0], plan)
		},
	}
	cmd.Flags().StringVar(&folder, "folder", ".report", "folder for the report")

	return cmd
}

// reportNotes say what a stack file alone does not show.
var reportNotes = []string{
	"Hosts are those of new machines: a running machine stays on its host, unless `nodes.<n>.host` sets another.",
}

func writeReport(out io.Writer, folder, stack string, plan *spec.Plan) error {
	page, err := report.HTML(plan)
	if err != nil {
		return err
	}

	if err := os.MkdirAll(folder, 0o700); err != nil {
		return fmt.Errorf("unable to create the report's folder: %w", err)
	}

	for name, text := range map[string][]byte{
		stack + ".md": []byte(report.Markdown(plan, reportNotes)), stack + ".html": page,
	} {
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o600); err != nil {
			return fmt.Errorf("unable to write the report: %w", err)
		}
	}
	//nolint:errcheck // to the terminal
	fmt.Fprintf(out, "%s\n%s\n", filepath.Join(folder, stack+".md"), filepath.Join(folder, stack+".html"))

	return nil
}
