package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"talos-proxmox/internal/cli"
)

func newDeploy(a *app) *cobra.Command {
	var (
		approved approval
		folder   string
		yes      bool
	)

	cmd := &cobra.Command{
		Use:   "deploy STACK",
		Short: "Deploy a stack as a pipeline does: guard, a copy of the state, then up",
		Long: `Runs the guard with a refresh, and stops if the plan would lose something that is not approved; stores a
copy of the state, as talos-proxmox backup state does; then runs pulumi up --refresh with the project's policies,
which shows its plan and asks for confirmation, unless --yes is set.`,
		Example:           "  talos-proxmox deploy prod\n  talos-proxmox deploy prod --yes --approve prod-general-2",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completion(nil),
		RunE: func(cmd *cobra.Command, args []string) error {
			stack := args[0]

			switch {
			case a.OnLab(stack):
				return fmt.Errorf("stack %s has no Proxmox of its own: %s brings it up; name another stack", stack, cli.LabUp(stack))
			case !yes && !cli.Terminal(cmd):
				return errors.New("cannot ask for confirmation without a terminal: pass --yes")
			}

			if err := a.removePlan(stack); err != nil {
				return err
			}

			e, err := a.newEngine(cmd, stack)
			if err != nil {
				return err
			}

			failure, err := a.storePlan(cmd, stack, e.previewer(cmd, planOptions{refresh: true}), io.Discard)
			if err != nil {
				return err
			}

			r, err := readReview(a.planPath(stack), approved.list())
			if err != nil {
				return err
			}

			if err := errors.Join(failure, r.report(cmd, cli.Text, false)); err != nil {
				return err
			}

			if err := backupState(cmd, e.Stack, folder); err != nil {
				return err
			}

			return e.up(cmd, planOptions{refresh: true}, yes, "talos-proxmox deploy "+stack)
		},
	}
	approved.flags(cmd)
	addDirectoryFlag(cmd, &folder)
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask for confirmation")

	return cmd
}

// up runs pulumi up, and logs its events for talos-proxmox status. Resume is the command that resumes it.
func (e engine) up(cmd *cobra.Command, o planOptions, yes bool, resume string) error {
	logged, err := cli.LogRun(e.RunLog())
	if err != nil {
		return err
	}

	e.Environment = append(e.Environment, cli.LoggedVariable)

	flags := append(o.appendTo([]string{"up"}), logged...)
	if yes {
		flags = append(flags, "--yes", "--non-interactive")
	}

	if err := e.run(cmd, cmd.OutOrStdout(), flags...); err != nil {
		return fmt.Errorf("%w. Was this run, or one before it, killed? talos-proxmox recover %s removes what it left; "+
			"then %s resumes. Would it create machines that run already? Then the state was lost, or is in another backend: "+
			"docs/recovery.md", err, e.Name, resume)
	}

	return nil
}
