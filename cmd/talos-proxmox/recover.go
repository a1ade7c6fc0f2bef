package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"talos-proxmox/internal/cli"
	"talos-proxmox/internal/operations"
	"talos-proxmox/internal/recovery"
	"talos-proxmox/internal/spec"
	"talos-proxmox/stacks"
)

func newRecover(a *app) *cobra.Command {
	var (
		yes       bool
		vmids     []int
		confirmed []string
		locks     []string
	)

	cmd := &cobra.Command{
		Use:   "recover STACK",
		Short: "Clean up after a killed run of a stack",
		Long: `A killed run (kill -9, a power cut, a lost connection, a pipeline's time limit) leaves the stack's lock,
pending operations in the state, plugins that keep running, and machines that are not in the state and block the next
run.

recover restores a truncated state file of a file backend from its backup, ends plugins of the killed run on this
computer, unlocks the stack, waits for Proxmox' tasks of the pending creations, removes the machines, templates, PCI
mappings and accounts that these created, and clears the pending operations. It removes a machine only if it has the
VMID and the name of a pending creation, has a description that says that this stack made it, and is not in the state;
a PCI mapping, a user or a token only if it has the name of a pending creation and a comment that says that this stack
made it; a role only if it has the name and the privileges of a pending creation and no ACL entry uses it. All others
are listed and not changed. It asks before it changes anything, and can be repeated.

A creation that failed is no longer pending: name its machine with --vmid. The machine must have the name and the
description that the stack plans for that VMID, and the state must have the secrets of its cluster. Otherwise the state
was lost, or this is another backend, and the machine may belong to a running cluster.

A machine that may be in use is removed only if its name is typed or given with --confirm; --yes is not enough. This
applies to a machine of a pending creation that answers with a Talos configuration, to a running machine of --vmid, and
to any machine older than the last successful run. Volumes of its VMID that are not in its configuration are listed and
kept.

It refuses while a run holds a cluster of the stack and renews its lease in Kubernetes, and while a process of this
computer holds the stack's lock. Whether a run on another computer has ended is not visible from here: recover asks, and
with --yes it refuses that lock unless it is named with --lock, as USER@HOST. Backends other than a folder do not say
who holds the lock: name it --lock ` + recovery.UnknownLock + `.

It uses the stack's own endpoint and credentials for Proxmox, and the hosts' shells for templates. Afterwards
` + "`pulumi up --refresh`" + ` resumes.`,
		Example: "  talos-proxmox recover prod\n  talos-proxmox recover prod --yes --lock ann@laptop\n" +
			"  talos-proxmox recover prod --vmid 3000 --confirm prod-general-1",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completion(nil),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := a.recoveryOptions(cmd, args[0])
			if err != nil {
				return err
			}

			o.VMIDs, o.Confirmed, o.Locks = vmids, confirmed, locks

			if a.OnLab(args[0]) {
				o.Resume = "`" + cli.LabUp(args[0]) + "`"
			}

			if !yes {
				o.Confirm = func(question string) (bool, error) { return cli.Confirm(cmd, question) }
				if cli.Terminal(cmd) {
					o.TypeName = func(question string) (string, error) { return cli.TypeName(cmd, question) }
				}
			}

			return recovery.Run(cmd.Context(), o)
		},
	}
	cmd.Flags().IntSliceVar(
		&vmids, "vmid", nil, "also remove this machine of the stack, although its creation is not pending",
	)
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask for confirmation")
	cmd.Flags().StringSliceVar(&locks, "lock", nil, "with --yes: remove this lock of another computer, USER@HOST; its run has ended")
	cmd.Flags().StringSliceVar(&confirmed, "confirm", nil, "remove the machine of this name, although it may be in use")

	return cmd
}

// recoveryOptions returns the options for the recovery of a stack that asks nothing.
func (a *app) recoveryOptions(cmd *cobra.Command, stack string) (o recovery.Options, err error) {
	s, err := a.connect(cmd, stack)
	if err != nil {
		return o, err
	}

	talosOps, err := a.TalosOps()
	if err != nil {
		return o, err
	}

	return recovery.Options{
		Project:     s.Folder,
		Stack:       stack,
		Pulumi:      pulumiOf(s),
		Shell:       recovery.TalosOps(talosOps),
		Environment: os.Getenv,
		Out:         cmd.OutOrStdout(),
		Runs: func(ctx context.Context) (live, unknown []string, err error) {
			deployed, err := operations.ReadDeployed(ctx, pulumiOf(s), stack, s.Folder, talosOps, cmd.ErrOrStderr())
			if err != nil {
				return nil, nil, err
			}

			return deployed.RunHolders(ctx)
		},
		Plan: func(config map[string]string) (*spec.Plan, error) { return stacks.PlanOfConfig(stack, config) },
	}, nil
}
