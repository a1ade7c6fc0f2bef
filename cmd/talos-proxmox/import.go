package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func newImport(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "import STACK [CLUSTER=SECRETS…]",
		Short: "Add machines that run, and the secrets of their clusters, to the state of a stack",
		Long: `Adds machines that others made, with Terraform or by hand, or that the stack itself made before its state
was lost. A machine is imported if Proxmox has it with the VMID and the name that the stack file plans. SECRETS is a
file with the machine secrets of a cluster, as talosctl gen secrets writes it; the machines of a cluster without one
are left out. PCI mappings and accounts of the clusters' software that the stack itself made are added, too, except
tokens, whose secrets Proxmox shows only once: the command prints how to remove them.

Only the state changes; the command can be repeated, and adds what the state lacks. The next pulumi up changes what
differs from the stack file, which guard shows before, and restarts each machine once, one after another. Until then
Pulumi protects what was imported against deletion.`,
		Example:           "  talos-proxmox import prod prod=secrets.yaml",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.completion(nil),
		RunE: func(cmd *cobra.Command, args []string) error {
			files, err := byCluster(args[1:])
			if err != nil {
				return err
			}

			bundles := map[string][]byte{}

			for cluster, path := range files {
				if bundles[cluster], err = os.ReadFile(path); err != nil {
					return fmt.Errorf("unable to read the machine secrets of cluster %s: %w", cluster, err)
				}
			}

			deployed, err := a.readDeployed(cmd, args[0])
			if err != nil {
				return err
			}

			cmd.PrintErrln("The provider reads each machine, and waits up to 15 minutes for a guest agent that is " +
				"enabled and does not answer.")

			names, tokenCommands, err := deployed.Import(cmd.Context(), bundles, time.Now())
			if err != nil {
				return err
			}

			printLines(cmd, fmt.Sprintf("stack %s has %d more resources: %s", args[0], len(names), strings.Join(names, ", ")),
				"to see what the next up changes on them: talos-proxmox preview "+args[0])

			if len(tokenCommands) > 0 {
				printLines(cmd, "Proxmox shows the secret of a token only once, so the next up creates these tokens again. Before that, "+
					"remove them as root on a host; until it has ended, the clusters' software has no access:")
				printLines(cmd, tokenCommands...)
			}

			return nil
		},
	}
}

// byCluster parses arguments of the form CLUSTER=FILE.
func byCluster(args []string) (map[string]string, error) {
	files := map[string]string{}

	for _, arg := range args {
		cluster, path, ok := strings.Cut(arg, "=")
		if !ok {
			return nil, fmt.Errorf("%q is not CLUSTER=FILE: name the cluster of each file", arg)
		}

		if first, twice := files[cluster]; twice {
			return nil, fmt.Errorf("%q: cluster %s has %s already: name one file", arg, cluster, first)
		}

		files[cluster] = path
	}

	return files, nil
}
