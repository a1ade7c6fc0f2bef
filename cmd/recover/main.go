// Command recover makes a stack usable again whose last run was killed.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"talos-proxmox/internal/command"
	"talos-proxmox/internal/recovery"
	"talos-proxmox/internal/spec"
	"talos-proxmox/stacks"
)

func main() { command.Main(newRoot()) }

func newRoot() *cobra.Command {
	var (
		project command.Project
		yes     bool
		vmids   []int
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

A creation that failed half-way is not pending any more: name its machine with --vmid. It then has to have the name that
the stack plans for that VMID.

It uses the stack's own endpoint and credentials for Proxmox, and the hosts' shells for templates. Afterwards
` + "`pulumi up --refresh`" + ` resumes.`,
		Example:       "  recover prod\n  recover --yes prod\n  recover --vmid 3000 prod",
		Args:          cobra.ExactArgs(1),
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := project.Absolute()
			if err != nil {
				return err
			}

			o := recovery.Options{
				Project:     p.Folder,
				Stack:       args[0],
				Pulumi:      recovery.CLI(p.Pulumi, p.Folder),
				Shell:       recovery.TalosOps(p.TalosOps),
				Environment: os.Getenv,
				Out:         cmd.OutOrStdout(),
				VMIDs:       vmids,
				Plan:        func(config map[string]string) (*spec.Plan, error) { return stacks.PlanOfConfig(args[0], config) },
			}
			if !yes {
				o.Confirm = func(question string) (bool, error) { return ask(cmd, question) }
			}

			return recovery.Run(cmd.Context(), o)
		},
	}
	project.Flags(cmd)
	cmd.Flags().IntSliceVar(
		&vmids, "vmid", nil, "remove this machine of the stack, too, although no creation of it is pending",
	)
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")

	return cmd
}

// ask wants a person's yes.
func ask(cmd *cobra.Command, question string) (bool, error) {
	//nolint:gosec // a file descriptor
	if input, ok := cmd.InOrStdin().(*os.File); ok && !term.IsTerminal(int(input.Fd())) {
		return false, errors.New("cannot ask for confirmation without a terminal: pass --yes")
	}

	_, _ = fmt.Fprintf(cmd.OutOrStdout(), "%s [y/N] ", question)

	line, err := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
	if err != nil {
		return false, err
	}

	answer := strings.ToLower(strings.TrimSpace(line))

	return answer == "y" || answer == "yes", nil
}
