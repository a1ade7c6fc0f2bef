package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"talos-proxmox/stacks"
)

func newCheck(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "check STACK",
		Short: "Compare a stack with its Proxmox and the Image Factory",
		Long: `Reads the stack's configuration and state, and makes the checks of every preview with Proxmox's API and
the Image Factory: the credentials and their privileges, hosts, quorum, datastores, bridges, VMIDs and names in use,
PCI mappings, resource pools, the Talos release of images to be downloaded, and where names and load balancers of
Kubernetes APIs lead. It prints the results host by host, and exits with status 1 if a problem blocks the plan or
Proxmox does not answer.

It changes nothing, takes no lock of the state, and shows no secret.`,
		Example:           "  talos-proxmox check prod",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completion(nil),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := a.connect(cmd, args[0])
			if err != nil {
				return err
			}

			text, err := stacks.Check(cmd.Context(), pulumiOf(s), args[0], os.Getenv)
			_, _ = fmt.Fprint(cmd.OutOrStdout(), text)

			return err
		},
	}
}
