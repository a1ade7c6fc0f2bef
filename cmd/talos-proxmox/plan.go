package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"talos-proxmox/internal/cli"
)

// planOptions are the flags of commands that plan.
type planOptions struct{ refresh, onLab bool }

func (o *planOptions) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.refresh, "refresh", false, "refresh the state from Proxmox first")
	cmd.Flags().BoolVar(&o.onLab, "on-lab", false, "plan on the lab, whatever Proxmox the stack uses")
}

func (o *planOptions) appendTo(flags []string) []string {
	if o.refresh {
		flags = append(flags, "--refresh")
	}

	return flags
}

func newPlan(a *app) *cobra.Command {
	var options planOptions

	cmd := &cobra.Command{
		Use:   "plan STACK",
		Short: "Write what up would do to .plan/STACK.json, for guard --plan and review",
		Long: `Previews the stack with the project's policies and stores the engine's output as JSON. A preview that fails
is stored as well, with its exit status, and guard and review report the reason. If there is no output, nothing is
stored.`,
		Example:           "  talos-proxmox plan prod\n  talos-proxmox plan dev --on-lab && talos-proxmox review",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completion(nil),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.writePlan(cmd, args[0], options); err != nil {
				return err
			}

			printLines(cmd, fmt.Sprintf("%s: `talos-proxmox review %s` shows it", a.planPath(args[0]), args[0]))

			return nil
		},
	}
	options.flags(cmd)

	return cmd
}

// writePlan previews a stack and stores the plan. It removes the previous plan first, so that a failure leaves no
// outdated one.
func (a *app) writePlan(cmd *cobra.Command, stack string, o planOptions) error {
	if err := a.removePlan(stack); err != nil {
		return err
	}

	preview, err := a.preparePreview(cmd, stack, o)
	if err != nil {
		return err
	}

	return a.storePlan(cmd, stack, preview)
}

// removePlan removes the plan of an earlier run.
func (a *app) removePlan(stack string) error {
	if err := os.Remove(a.planPath(stack)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("unable to remove the previous plan: %w", err)
	}

	return nil
}

// storePlan writes a preview's output as JSON. A preview that fails without output stores nothing; only its error is
// returned.
func (a *app) storePlan(cmd *cobra.Command, stack string, preview previewer) error {
	path := a.planPath(stack)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // plans contain no secrets
		return fmt.Errorf("unable to create the folder of plans: %w", err)
	}

	file, err := os.Create(path) //nolint:gosec // in the project's folder
	if err != nil {
		return fmt.Errorf("unable to write the plan: %w", err)
	}
	defer file.Close() //nolint:errcheck // the guard rejects a truncated plan

	previewErr := preview(file, true)
	if previewErr == nil {
		return nil
	}

	if info, err := file.Stat(); err == nil && info.Size() == 0 {
		return errors.Join(previewErr, os.Remove(path))
	}

	// The events do not contain the exit status, so it is appended.
	if err := appendDocument(path, map[string]int{"exitStatus": cli.Status(cmd, previewErr)}); err != nil {
		return err
	}

	_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "the preview failed; guard and review say why (%s)\n", previewErr)

	return nil
}

// previewer previews a stack, as text or JSON.
type previewer func(to io.Writer, asJSON bool) error

// preparePreview returns the previewer of a stack: on the lab, which it starts, or with the stack's engine.
func (a *app) preparePreview(cmd *cobra.Command, stack string, o planOptions) (previewer, error) {
	if o.onLab || a.OnLab(stack) {
		lab, err := a.startLab(cmd)
		if err != nil {
			return nil, err
		}

		return func(to io.Writer, asJSON bool) error {
			flags := append([]string{"preview", "--stack", stack, "--policy"}, a.policyConfig(stack, "--policy-config")...)
			if asJSON {
				flags = append(flags, "--json")
			}

			return cli.Run(cmd.Context(), a.Folder, nil, to, cmd.ErrOrStderr(), lab, o.appendTo(flags)...)
		}, nil
	}

	e, err := a.newEngine(cmd, stack)
	if err != nil {
		return nil, err
	}

	return e.previewer(cmd, o), nil
}

// previewer previews the stack on its own Proxmox.
func (e engine) previewer(cmd *cobra.Command, o planOptions) previewer {
	return func(to io.Writer, asJSON bool) error {
		flags := o.appendTo([]string{"preview"})
		if asJSON {
			flags = append(flags, "--non-interactive", "--json", "--show-sames")
			e.Environment = append(e.Environment, "PULUMI_ENABLE_STREAMING_JSON_PREVIEW=true")
		} else {
			flags = append(flags, "--suppress-outputs") // so that the changes stand at the end
		}

		return e.run(cmd, to, flags...)
	}
}
