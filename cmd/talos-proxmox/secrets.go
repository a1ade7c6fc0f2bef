package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"talos-proxmox/internal/cli"
	"talos-proxmox/stacks"
)

func newSecrets(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "secrets",
		Short: "Export machine secrets, continue with them, replace an authority, import secrets of SOPS",
	}
	cmd.AddCommand(newSecretsExport(a), newReseal(a), newRotateCA(a), newSecretsImport(a))

	return cmd
}

func newSecretsExport(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "export STACK [CLUSTER…]",
		Short: "Export each cluster's machine secrets, encrypted",
		Long: `Writes the machine secrets of each cluster (certificate authorities, tokens, the key of etcd's
Secrets), which are in the state only, as talosctl gen secrets writes them, encrypted with age to
backup.secretsRecipients of the stack's file. A snapshot of etcd is of no use without them. They change with
rotate-ca only: export them once, after that, and after each import of others. It changes neither configuration nor
state, and takes no lock.`,
		Example:           "  talos-proxmox secrets export prod",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.completion(clusterNames),
		RunE: a.keep(func(ctx context.Context, b stacks.Backups, clusters []string) ([]string, error) {
			return b.Secrets(ctx, time.Now(), clusters...)
		}),
	}
}

func newSecretsImport(a *app) *cobra.Command {
	var (
		mapping []string
		dryRun  bool
	)

	cmd := &cobra.Command{
		Use:   "import STACK FILE",
		Short: "Store the secrets of a file that SOPS encrypted in a stack's configuration",
		Long: `The file is YAML or JSON; its key is found as sops finds it (SOPS_AGE_KEY_FILE, …). Without --map its
keys are configuration keys themselves. Secrets that the stack has already are left as they are.`,
		Example: "  talos-proxmox secrets import prod secrets.enc.yaml --dry-run\n" +
			"  talos-proxmox secrets import prod secrets.enc.yaml --map proxmox.token=proxmoxve:apiToken",
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: a.completion(nil),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := a.Stack(args[0])
			if err != nil {
				return err
			}

			file, err := filepath.Abs(args[1])
			if err != nil {
				return fmt.Errorf("unable to find %s: %w", args[1], err)
			}

			flags := []string{"--stack", args[0], "--project", s.Folder, "--pulumi", s.Pulumi}
			for _, one := range mapping {
				flags = append(flags, "--map", one)
			}

			if dryRun {
				flags = append(flags, "--dry-run")
			}

			path, err := secretsImport.Find(a.Folder)
			if err != nil {
				return err
			}

			return cli.Run(cmd.Context(), s.Folder, s.Environment, cmd.OutOrStdout(), cmd.ErrOrStderr(), path,
				append(flags, file)...)
		},
	}
	cmd.Flags().StringSliceVar(&mapping, "map", nil, "path in the file = configuration key; may be repeated")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "say what would be stored, by name")

	return cmd
}
