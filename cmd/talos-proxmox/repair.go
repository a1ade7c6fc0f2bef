package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"talos-proxmox/internal/cli"
	"talos-proxmox/internal/operations"
	"talos-proxmox/internal/recovery"
)

// Exit statuses of repair.
const (
	repairRefused = 1 // a machine is left to a person
	repairFailed  = 2 // what is dead could not be found out, or a replacement failed
)

// repairing holds the flags of the command repair.
type repairing struct {
	folder string
	dryRun bool
	output cli.Output
}

func newRepair(a *app) *cobra.Command {
	var r repairing

	cmd := &cobra.Command{
		Use:   "repair STACK",
		Short: "Replace dead workers without asking, for timers and pipelines",
		Long: `Replaces the machines of dead workers in pools with repair, as talos-proxmox replace does, one after the other
and at most repair.max of a pool. A worker is dead if its node has not been Ready for repair.after, and its machine does
not answer. It asks nothing, and does nothing if no worker is dead.

It leaves a worker to a later run while its node is cordoned, while Proxmox' high availability may start its VM, and
while another run works on its cluster. It leaves to a person, with the command for that: a worker whose machine
answers; one on a host that is offline, where its VM may still run; one with volumes of its own, unless its pool has
repair.loseVolumes; everything while etcd has no majority or Kubernetes does not answer; and everything while the stack
file has changes of other machines that were not deployed. It never replaces a control plane.

With a webhook, it tells that what it replaced, failed at, or left to a person, as talos-proxmox deploy does.

What a killed run of this computer left, it first removes as talos-proxmox recover does, and then finishes the
replacement. It stores a copy of the state before each.

Exit status: 0 no worker is dead, or all were replaced or are left to a later run; 1 a worker is left to a person; 2 it
could not find out, or a replacement failed. --output json prints one line.`,
		Example: "  talos-proxmox repair prod\n  talos-proxmox repair prod --dry-run\n" +
			"  talos-proxmox repair prod --output json | jq -r '.repairs[] | select(.action == \"refuse\") | .command'",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completion(nil),
		Annotations:       cli.OtherErrors(repairFailed),
		RunE: func(cmd *cobra.Command, args []string) error {
			if a.OnLab(args[0]) {
				return fmt.Errorf("stack %s has no Proxmox of its own: %s brings it up; name another stack", args[0], cli.LabUp(args[0]))
			}

			return a.repair(cmd, args[0], r)
		},
	}
	addDirectoryFlag(cmd, &r.folder)
	r.output.Flag(cmd)
	cmd.Flags().BoolVar(&r.dryRun, "dry-run", false, "only print what would be done")

	return cmd
}

// repairResult is what a repair did, as JSON.
type repairResult struct {
	Stack   string              `json:"stack"`
	DryRun  bool                `json:"dryRun,omitempty"`
	Repairs []operations.Repair `json:"repairs"`
	Error   string              `json:"error,omitempty"` // why the run ended early
}

// repair replaces dead workers, and prints what it did.
func (a *app) repair(cmd *cobra.Command, stack string, r repairing) error {
	out := cmd.OutOrStdout()
	if r.output == cli.JSON { // standard output has nothing else
		cmd.SetOut(cmd.ErrOrStderr())
	}

	run := repairRun{app: a, cmd: cmd, stack: stack, repairing: r}

	n, err := a.newNotifier(cmd, stack)
	if run.notifier = n; err == nil {
		err = run.repair()
	}

	if told := n.repaired(run.repairs); !r.dryRun && (told || err != nil) {
		n.tell(err)
	}

	cmd.SetOut(out)

	if r.output == cli.JSON {
		result := repairResult{Stack: stack, DryRun: r.dryRun, Repairs: append([]operations.Repair{}, run.repairs...)}
		if err != nil {
			result.Error = err.Error()
		}

		if err := cli.PrintJSON(cmd, result); err != nil {
			return err
		}
	} else {
		run.print()
	}

	has := func(action operations.RepairAction) bool {
		return slices.ContainsFunc(run.repairs, func(repair operations.Repair) bool { return repair.Action == action })
	}

	switch {
	case err != nil:
		return cli.WithStatus(repairFailed, err)
	case has(operations.RepairRefuse):
		return cli.WithStatus(repairRefused, fmt.Errorf("stack %s has workers that only a person may replace, see above", stack))
	default:
		return nil
	}
}

// repairRun is a run of the command.
type repairRun struct {
	*app
	repairing

	cmd       *cobra.Command
	stack     string
	notifier  *notifier
	repairs   []operations.Repair // what was done, then what is left
	recovered bool
}

func (r *repairRun) print() {
	for _, repair := range r.repairs {
		printLines(r.cmd, repair.String())
	}

	if len(r.repairs) == 0 {
		printLines(r.cmd, fmt.Sprintf("No worker of stack %s is dead.", r.stack))
	}
}

// repair replaces one machine after the other, and decides anew after each.
func (r *repairRun) repair() error {
	var done []operations.Repair

	for {
		repairer, left, err := r.decide(done)
		if err != nil {
			r.repairs = done

			return err
		}

		r.repairs = slices.Concat(done, left)

		next := slices.IndexFunc(left, func(repair operations.Repair) bool {
			return repair.Action == operations.RepairReplace
		})
		if next < 0 {
			return nil
		}

		repair, err := r.replace(repairer, left[next])
		done = append(done, repair)

		if err != nil {
			r.repairs = slices.Concat(done, slices.Delete(left, next, next+1))

			return err
		}
	}
}

// decide returns what is to be done about dead workers. A state that a killed run left half-written is recovered.
func (r *repairRun) decide(done []operations.Repair) (operations.Repairer, []operations.Repair, error) {
	repairer, left, err := r.decideNow(done)
	if err != nil {
		recovered, recoveryErr := r.recover(r.cmd.Context())
		if recovered {
			return r.decideNow(done)
		}

		err = errors.Join(err, recoveryErr)
	}

	return repairer, left, err
}

func (r *repairRun) decideNow(done []operations.Repair) (operations.Repairer, []operations.Repair, error) {
	deployed, err := r.readDeployed(r.cmd, r.stack)
	if err != nil {
		return operations.Repairer{}, nil, err
	}

	repairer := operations.Repairer{Replacer: operations.Replacer{Deployed: deployed}, Now: time.Now, Recover: r.recover}
	left, err := repairer.Decide(r.cmd.Context(), done)

	return repairer, left, err
}

// recover removes what a killed run left, and reports whether there was anything. It does so once.
func (r *repairRun) recover(ctx context.Context) (recovered bool, err error) {
	if r.dryRun || r.recovered {
		return false, nil
	}

	o, err := r.recoveryOptions(r.cmd, r.stack)
	if err != nil {
		return false, err
	}

	needed, err := recovery.Needed(ctx, o)
	if err != nil || !needed {
		return false, err
	}

	if err := recovery.Run(ctx, o); err != nil {
		return false, err
	}

	r.recovered = true

	return true, nil
}

// replace replaces the machine of a worker, or previews that. It returns what was done; an error ends the run.
func (r *repairRun) replace(repairer operations.Repairer, repair operations.Repair) (operations.Repair, error) {
	printLines(r.cmd, append([]string{repair.String()}, repair.Plan.Lines...)...)

	e, err := r.newEngine(r.cmd, r.stack)
	if err != nil {
		return repair, err
	}

	e.notifier = r.notifier
	options := planOptions{refresh: true, replace: repair.Plan.URN}

	may := guarded{alone: repair.Node, loseAll: repair.LoseVolumes}
	review, err := r.guardReplacement(r.cmd, e, options, repair.Plan, may)

	var losses lossError

	switch {
	case errors.As(err, &losses):
		return repairer.RefuseLosses(repair, losses.volumes), nil
	case errors.Is(err, errFindings) && review.Finished:
		repair.Action, repair.Command = operations.RepairRefuse, "talos-proxmox preview "+r.stack
		repair.Why = fmt.Sprintf("%s; but %v", repair.Why, err)

		return repair, nil
	case err != nil:
		return failed(repair, err)
	case r.dryRun:
		return repair, nil
	}

	if err := backupState(r.cmd, e.Stack, r.folder); err != nil {
		return failed(repair, err)
	}

	upErr := e.up(r.cmd, options, true, "talos-proxmox repair "+r.stack)

	// A run that cannot complete, because another worker is dead, may have replaced this one.
	well, err := repairer.IsWell(context.WithoutCancel(r.cmd.Context()), repair)
	if upErr != nil && !well {
		return failed(repair, errors.Join(upErr, err))
	}

	repair.Action = operations.RepairReplaced

	return repair, upErr
}

// failed returns a repair that failed.
func failed(repair operations.Repair, err error) (operations.Repair, error) {
	repair.Action = operations.RepairFailed
	repair.Why += "; but " + strings.TrimSpace(err.Error())

	return repair, fmt.Errorf("unable to replace the machine of %s: %w", repair.Node, err)
}
