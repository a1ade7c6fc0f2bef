package main

import (
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"talos-proxmox/internal/cli"
	"talos-proxmox/internal/recovery"
	"talos-proxmox/internal/spec"
	"talos-proxmox/stacks"
)

func newRecover(a *app) *cobra.Command {
	var (
		yes       bool
		vmids     []int
		confirmed []string
	)

	cmd := &cobra.Command{
		Use:   "recover STACK",
		Short: "Make a stack usable again whose last run was killed",
		Long: `A killed run (kill -9, a power cut, a lost connection, a pipeline's time-out) leaves the stack's lock,
operations that the state lists as pending, plugins that work on, and machines that the state does not know and that
block the next run.

recover restores a half-written state of a file backend from its backup, ends such plugins where they run on this
machine, unlocks the stack, waits until Proxmox has ended what it does for the pending creations, removes the machines,
templates, PCI mappings and accounts that they made, and takes the pending operations off the state. It removes a
machine only if it has the VMID and the name of a pending creation, says in its description that this stack made it, and
is not in the state; a PCI mapping, a user or a token only if it has the name of a pending creation and says in its
comment that this stack made it; a role only if it has the name and the privileges of one and no rule names it. Any
other is named and left alone. It asks before it changes anything; it can be repeated.

A creation that failed half-way is not pending any more: name its machine with --vmid. It then has to have the name and
the description that the stack plans for that VMID, and the state the secrets of its cluster: a state that has nothing
of the cluster was lost, or is another backend's, and the machine may be the cluster's.

A machine that may be in use is removed only if somebody types its name, or names it with --confirm; --yes is not
enough. That is one of a pending creation that answers with a Talos configuration, one that --vmid names and that runs,
and any that is older than the last run that succeeded. Volumes of a VMID that the machine does not name stay, and are
listed.

It uses the stack's own endpoint and credentials for Proxmox, and the hosts' shells for templates. Afterwards
` + "`pulumi up --refresh`" + ` resumes.`,
		Example: "  talos-proxmox recover prod\n  talos-proxmox recover prod --yes\n" +
			"  talos-proxmox recover prod --vmid 3000 --confirm prod-general-1",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completion(nil),
		RunE: func(cmd *cobra.Command, args []string) error {
			if a.OnLab(args[0]) { // nobody else has the lab: it does not ask
				return a.lab(cmd, append([]string{"recover"}, labFlags(vmids, confirmed)...)...)
			}

			s, err := a.Stack(args[0])
			if err != nil {
				return err
			}

			talosOps, err := a.TalosOps()
			if err != nil {
				return err
			}

			o := recovery.Options{
				Project:     s.Folder,
				Stack:       args[0],
				Pulumi:      pulumiOf(s),
				Shell:       recovery.TalosOps(talosOps),
				Environment: os.Getenv,
				Out:         cmd.OutOrStdout(),
				VMIDs:       vmids,
				Confirmed:   confirmed,
				Plan:        func(config map[string]string) (*spec.Plan, error) { return stacks.PlanOfConfig(args[0], config) },
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
		&vmids, "vmid", nil, "remove this machine of the stack, too, although no creation of it is pending",
	)
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.Flags().StringSliceVar(&confirmed, "confirm", nil, "remove this machine, by its name, although it may be in use")

	return cmd
}

// labFlags name machines to the lab's recovery.
func labFlags(vmids []int, confirmed []string) []string {
	var flags []string
	for _, vmid := range vmids {
		flags = append(flags, "--vmid", strconv.Itoa(vmid))
	}

	for _, name := range confirmed {
		flags = append(flags, "--confirm", name)
	}

	return flags
}
