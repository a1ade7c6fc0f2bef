package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"talos-proxmox/internal/cli"
	"talos-proxmox/stacks"
)

func newCheck(a *app) *cobra.Command {
	var (
		keyFile string
		output  cli.Output
	)

	cmd := &cobra.Command{
		Use:   "check STACK",
		Short: "Compare a stack with its state, its hosts, Proxmox and the Image Factory",
		Long: `Makes all checks of a preview, without the engine: the configuration and the machine configurations from it,
the changes of running machines, the hosts (hardware, boot loader, IOMMU, GPUs, storages, ZFS) over SSH, the
credentials and their privileges, quorum, datastores, bridges, VMIDs and names in use, mappings, resource pools, the
Talos release of images to be downloaded, and where names and load balancers of Kubernetes APIs lead. It prints what
each host is, and what was found there.

It exits with status 1 if a problem blocks the plan, or Proxmox or a host does not answer: the last line says what was
not asked. It changes nothing, takes no lock of the state, and shows no secret. The private key for the hosts' shells
is that of --private-key-file or of the configuration (talos-proxmox:sshPrivateKey); without one the SSH agent is
used.`,
		Example: "  talos-proxmox check prod\n  talos-proxmox check dev --private-key-file ~/.ssh/pve\n" +
			"  talos-proxmox check prod --output json",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completion(nil),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := a.connect(cmd, args[0])
			if err != nil {
				return err
			}

			check := stacks.Check{Stack: args[0], Folder: s.Folder, Pulumi: pulumiOf(s)}
			if check.TalosOps, err = a.TalosOps(); err != nil {
				return err
			}

			if keyFile != "" {
				content, err := os.ReadFile(keyFile) //nolint:gosec // the user names the file
				if err != nil {
					return fmt.Errorf("unable to read the private key: %w", err)
				}

				check.PrivateKey = string(content)
			}

			done, err := check.Run(cmd.Context())

			switch {
			case err != nil && !errors.Is(err, stacks.ErrCheck):
				return err
			case output == cli.JSON:
				return errors.Join(err, cli.PrintJSON(cmd, done))
			default:
				_, _ = fmt.Fprint(cmd.OutOrStdout(), fit(cmd, done.String()))

				return err
			}
		},
	}
	output.Flag(cmd)
	cmd.Flags().StringVar(&keyFile, "private-key-file", "", "private key for the hosts' shells")

	return cmd
}
