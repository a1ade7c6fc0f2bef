package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"talos-proxmox/internal/cli"
	"talos-proxmox/internal/operations"
	"talos-proxmox/internal/spec"
)

// replacing holds the flags of the command replace.
type replacing struct {
	host, folder string
	loseVolumes  []string
	yes          bool
}

func newReplace(a *app) *cobra.Command {
	var r replacing

	cmd := &cobra.Command{
		Use:   "replace STACK [NODE]",
		Short: "Replace a node's machine, or all machines of a host that is gone for good",
		Long: `Replaces the machine of a node that is dead or broken: the node leaves its cluster, without the machine's help
if it does not answer, Proxmox stops and deletes the VM, and a new one joins as the same node. With --host, it creates
all machines of a lost host on the others, as the stack file plans them then, and removes what was the host's own
(images, templates, preparation) from the state.

It shows first what leaves, where the new machines go, whether etcd keeps its majority, and what is lost, runs the guard
as talos-proxmox deploy does, and asks. Volumes that would be lost are named, and refused without --lose-volumes. It
never makes two machines of one identity: the old VM must be one that Proxmox can delete, or gone from Proxmox and
silent. It refuses a host that is in the stack file or in Proxmox' cluster with machines, and says what to remove.

It stores a copy of the state, and can be interrupted and repeated, after talos-proxmox recover if it was killed. It
tells a webhook how it ended, as talos-proxmox deploy does.`,
		Example: "  talos-proxmox replace prod prod-general-2\n" +
			"  talos-proxmox replace prod prod-db-1 --lose-volumes prod-db-1/virtio1\n  talos-proxmox replace prod --host pve2",
		Args: cobra.RangeArgs(1, 2),
		ValidArgsFunction: a.completion(func(plan *spec.Plan) (names []string) {
			for _, c := range plan.Clusters {
				for _, n := range c.Nodes() {
					names = append(names, n.Name)
				}
			}

			return names
		}),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case (len(args) == 2) == (r.host != ""):
				return errors.New("name either a node, or a host with --host")
			case a.OnLab(args[0]):
				return fmt.Errorf("stack %s has no Proxmox of its own: %s brings it up; name another stack", args[0], cli.LabUp(args[0]))
			case !r.yes && !cli.Terminal(cmd):
				return errors.New("cannot ask for confirmation without a terminal: pass --yes")
			}

			n, err := a.newNotifier(cmd, args[0])
			if err != nil {
				return err
			}

			err = a.replace(cmd, args, r, n)
			if !errors.Is(err, errDeclined) {
				n.tell(err)
			}

			return err
		},
	}
	addDirectoryFlag(cmd, &r.folder)
	cmd.Flags().StringVar(&r.host, "host", "", "replace all machines of this host, which is gone for good")
	cmd.Flags().StringSliceVar(
		&r.loseVolumes, "lose-volumes", nil, "volumes that may be lost, as the refusal names them; may be repeated",
	)
	cmd.Flags().BoolVar(&r.yes, "yes", false, "do not ask for confirmation")

	return cmd
}

// errDeclined says that a person has decided against it.
var errDeclined = errors.New("nothing was replaced")

// replace plans a replacement, asks, and has the engine do it.
func (a *app) replace(cmd *cobra.Command, args []string, r replacing, n *notifier) error {
	stack := args[0]

	deployed, err := a.readDeployed(cmd, stack)
	if err != nil {
		return err
	}

	replacer := operations.Replacer{Deployed: deployed}

	var plan operations.Replacement

	if r.host != "" {
		plan, err = replacer.Host(cmd.Context(), r.host)
	} else {
		plan, err = replacer.Node(cmd.Context(), args[1])
	}

	if err != nil {
		return err
	}

	printLines(cmd, plan.Lines...)

	e, err := a.newEngine(cmd, stack)
	if err != nil {
		return err
	}

	e.notifier = n

	options := planOptions{refresh: true, replace: plan.URN}
	guard := func() error {
		_, err := a.guardReplacement(cmd, e, options, plan, guarded{loseVolumes: r.loseVolumes})

		return err
	}

	// The engine could not refresh what is a lost host's own: the state forgets that before a preview.
	if len(plan.Forgotten) == 0 {
		if err := guard(); err != nil {
			return err
		}
	}

	if !r.yes {
		switch yes, err := cli.Confirm(cmd, "Replace this?"); {
		case err != nil:
			return err
		case !yes:
			return errDeclined
		}
	}

	if err := backupState(cmd, e.Stack, r.folder); err != nil {
		return err
	}

	if len(plan.Forgotten) > 0 {
		if err := replacer.Forget(cmd.Context(), plan); err != nil {
			return err
		}

		if err := guard(); err != nil {
			return err
		}
	}

	resume := "talos-proxmox replace " + strings.Join(args, " ")
	if r.host != "" {
		resume += " --host " + r.host
	}

	return e.up(cmd, options, true, resume)
}

// guarded says what a replacement may do.
type guarded struct {
	loseVolumes []string // volumes that may be lost
	loseAll     bool     // all of them may be
	alone       string   // the only node whose machine may change; empty = the guard judges that
}

// lossError says which volumes would be lost although nobody has named them.
type lossError struct{ volumes []string }

// Error implements error.
func (e lossError) Error() string {
	return "nothing was changed: these volumes would be lost. Save what you need of them; then, to lose them, repeat with " +
		"--lose-volumes " + strings.Join(e.volumes, ",")
}

// guardReplacement previews the run, and refuses what the replacement does not mean, and losses that nobody has named.
func (a *app) guardReplacement(
	cmd *cobra.Command, e engine, options planOptions, plan operations.Replacement, may guarded,
) (r review, err error) {
	if err := a.removePlan(e.Name); err != nil {
		return r, err
	}

	failure, err := a.storePlan(cmd, e.Name, e.previewer(cmd, options), io.Discard)
	if err != nil {
		return r, err
	}

	approved := slices.Concat(plan.Approved, may.loseVolumes)

	if r, err = readReview(a.planPath(e.Name), approved); err != nil {
		return r, err
	}

	e.notifier.planned(r)

	r.unused = nil // a loss may be known to Proxmox alone

	if !r.Finished {
		return r, errors.Join(failure, r.verdict(cmd.OutOrStdout(), cmd))
	}

	if others := r.ChangedBeside(may.alone); may.alone != "" && len(others) > 0 {
		return r, fmt.Errorf("%w: the run would do more than replace %s, because the stack file or Proxmox has changed: %s", errFindings,
			may.alone, strings.Join(others, ", "))
	}

	lost := slices.Clone(plan.Losses)

	for _, finding := range r.findings {
		printLines(cmd, finding.String())

		if len(finding.Losses) == 0 {
			return r, fmt.Errorf("%w: it does more than replace this. talos-proxmox preview %s shows the plan of everything else: run that "+
				"first", errFindings, e.Name)
		}

		lost = append(lost, finding.Losses...)
	}

	lost = slices.DeleteFunc(lost, func(name string) bool { return may.loseAll || slices.Contains(approved, name) })
	if len(lost) > 0 {
		return r, lossError{lost}
	}

	return r, nil
}
