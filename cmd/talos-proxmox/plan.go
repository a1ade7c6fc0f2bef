package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"talos-proxmox/internal/cli"
)

// planOptions are the flags of commands that plan.
type planOptions struct {
	refresh bool
	replace string // URN; empty = none
}

func (o *planOptions) planFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.refresh, "refresh", false, "refresh the state from Proxmox first")
}

func (o *planOptions) appendTo(flags []string) []string {
	if o.refresh {
		flags = append(flags, "--refresh")
	}

	if o.replace != "" {
		flags = append(flags, "--replace", o.replace)
	}

	return flags
}

// planPath returns the file of a stack's stored plan.
func (a *app) planPath(stack string) string {
	return filepath.Join(a.Folder, ".plan", cli.ShortName(stack)+".json")
}

// planOf returns the short name of the stack whose plan a file is.
func planOf(path string) string { return strings.TrimSuffix(filepath.Base(path), filepath.Ext(path)) }

// writePlan previews a stack: display gets what the engine prints, and .plan/STACK.json the plan. It removes the plan
// of an earlier run first, so that a failure leaves no outdated one. See storePlan for the errors.
func (a *app) writePlan(cmd *cobra.Command, stack string, o planOptions, display io.Writer) (failure, err error) {
	if err := a.removePlan(stack); err != nil {
		return nil, err
	}

	preview, err := a.previewer(cmd, stack, o)
	if err != nil {
		return nil, err
	}

	return a.storePlan(cmd, stack, preview, display)
}

func (a *app) removePlan(stack string) error {
	if err := os.Remove(a.planPath(stack)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("unable to remove the previous plan: %w", err)
	}

	return nil
}

// storePlan previews a stack. A preview that fails is stored as well, with its exit status, and failure is why; before
// its first event there is no plan, but err.
func (a *app) storePlan(
	cmd *cobra.Command, stack string, preview previewer, display io.Writer,
) (failure, err error) {
	path := a.planPath(stack)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // plans contain no secrets
		return nil, fmt.Errorf("unable to create the folder of plans: %w", err)
	}

	events, err := filepath.Abs(path) // the engine runs in another folder
	if err != nil {
		return nil, fmt.Errorf("unable to find the folder of plans: %w", err)
	}

	failure = preview(display, events)
	if failure == nil {
		return nil, nil
	}

	if info, err := os.Stat(path); err != nil || info.Size() == 0 {
		return nil, errors.Join(failure, a.removePlan(stack))
	}

	// The events do not contain the exit status.
	return failure, appendDocument(path, map[string]int{"exitStatus": cli.Status(cmd, failure)})
}

// previewer previews a stack: display gets what the engine prints, and a file its events, without secrets.
type previewer func(display io.Writer, events string) error

// previewer returns the previewer of a stack: on the lab, which it starts, or with the stack's engine.
func (a *app) previewer(cmd *cobra.Command, stack string, o planOptions) (previewer, error) {
	if a.OnLab(stack) {
		lab, err := a.startLab(cmd)
		if err != nil {
			return nil, err
		}

		return func(display io.Writer, events string) error {
			flags := append([]string{"preview", "--stack", stack, "--policy"}, a.policyConfig(stack, "--policy-config")...)

			return cli.Run(cmd.Context(), a.Folder, nil, display, cmd.ErrOrStderr(), lab,
				o.appendTo(append(flags, "--event-log", events))...)
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
	e.Environment = append(e.Environment, cli.LoggedVariable, cli.OneCheckpoint)

	return func(display io.Writer, events string) error {
		// Without outputs, the changes stand at the end.
		return e.run(cmd, display, o.appendTo([]string{"preview", "--suppress-outputs", "--event-log", events})...)
	}
}
