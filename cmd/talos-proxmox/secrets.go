package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"talos-proxmox/internal/cli"
	"talos-proxmox/internal/operations"
)

func newSecrets(a *app) *cobra.Command {
	return parent("secrets", "Export machine secrets, continue with them, replace an authority, import secrets from SOPS",
		newSecretsExport(a), newReseal(a), newRotateCA(a), newSecretsImport(a))
}

func newSecretsExport(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "export STACK [CLUSTER…]",
		Short: "Export each cluster's machine secrets, encrypted",
		Long: `Writes the machine secrets of each cluster (certificate authorities, tokens, the key that encrypts Secrets in
etcd), which are only in the state, in the format of talosctl gen secrets, encrypted with age to
backup.secretsRecipients of the stack file. A snapshot of etcd is useless without them. They only change with
rotate-ca: export them once, after that, and after importing others. The command changes neither configuration nor
state, and takes no lock.`,
		Example:           "  talos-proxmox secrets export prod",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.completion(clusterNames),
		RunE: a.backupCommand(func(ctx context.Context, b operations.Backups, clusters []string) ([]string, error) {
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
		Short: "Import secrets from a SOPS-encrypted file into a stack's configuration",
		Long: `The file is YAML or JSON; sops finds its key as usual (SOPS_AGE_KEY_FILE, …). Without --map its keys are
configuration keys. Secrets that the stack already has are not changed.`,
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
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "list the names of secrets that would be stored")

	return cmd
}
