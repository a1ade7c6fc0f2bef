package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"talos-proxmox/internal/cli"
	"talos-proxmox/internal/planguard"
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
which shows its plan and asks for confirmation, unless --yes is set. With a webhook (notifications.webhook of the stack
file, or TALOS_PROXMOX_WEBHOOK), it tells that how it ended: docs/pipelines.md#notifications.`,
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

			n, err := a.newNotifier(cmd, stack)
			if err != nil {
				return err
			}

			err = a.deploy(cmd, stack, approved, folder, yes, n)
			n.tell(err)

			return err
		},
	}
	approved.flags(cmd)
	addDirectoryFlag(cmd, &folder)
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask for confirmation")

	return cmd
}

// deploy previews and guards the stack, stores a copy of its state, and brings it up.
func (a *app) deploy(
	cmd *cobra.Command, stack string, approved approval, folder string, yes bool, n *notifier,
) error {
	if err := a.removePlan(stack); err != nil {
		return err
	}

	e, err := a.newEngine(cmd, stack)
	if err != nil {
		return err
	}

	e.notifier = n

	failure, err := a.storePlan(cmd, stack, e.previewer(cmd, planOptions{refresh: true}), io.Discard)
	if err != nil {
		return err
	}

	r, err := readReview(a.planPath(stack), approved.list())
	if err != nil {
		return err
	}

	n.planned(r)

	if err := errors.Join(failure, r.report(cmd, cli.Text, false)); err != nil {
		return err
	}

	if err := backupState(cmd, e.Stack, folder); err != nil {
		return err
	}

	return e.up(cmd, planOptions{refresh: true}, yes, "talos-proxmox deploy "+stack)
}

// up runs pulumi up, and logs its events for talos-proxmox status and the notifier. Resume is the command that resumes
// it.
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

	err = e.run(cmd, cmd.OutOrStdout(), flags...)
	e.notifier.ran(e.RunLog())

	if err != nil {
		return fmt.Errorf("%w. Was this run, or one before it, killed? talos-proxmox recover %s removes what it left; "+
			"then %s resumes. Would it create machines that run already? Then the state was lost, or is in another backend: "+
			"docs/recovery.md", err, e.Name, resume)
	}

	explainShutdown(cmd, e.RunLog())

	return nil
}

// explainShutdown explains errors that a successful run printed about plugins, by the log of its events.
func explainShutdown(cmd *cobra.Command, log string) {
	file, err := os.Open(log) //nolint:gosec // this process's own
	if err != nil {
		return // only the explanation is missing
	}
	defer file.Close()

	if done, err := planguard.Parse(file); err == nil && done.Shutdown() != "" {
		printLines(cmd, fit(cmd, "note: "+done.Shutdown()))
	}
}
