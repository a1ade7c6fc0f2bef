package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"talos-proxmox/internal/cli"
	"talos-proxmox/internal/offsite"
	"talos-proxmox/internal/operations"
)

func newBackup(a *app) *cobra.Command {
	return parent("backup", "Back up etcd, and the stack's state", newBackupEtcd(a), newBackupState(a))
}

func newBackupEtcd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "etcd STACK [CLUSTER…]",
		Short: "Store an encrypted snapshot of each cluster's etcd",
		Long: `Takes a snapshot of each cluster's etcd, verifies it, encrypts it with age to backup.recipients of the
stack file and stores it in backup.directory, keeping the newest backup.keep of each cluster. With backup.s3 a copy is
stored in a bucket, where nobody can delete it before its retention ends. If a cluster or a copy fails, the others are
still made, and the exit status is 1. The command changes neither configuration nor state, and takes no lock.`,
		Example:           "  talos-proxmox backup etcd prod\n  talos-proxmox backup etcd prod home edge",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.completion(clusterNames),
		RunE: a.backupCommand(func(ctx context.Context, b operations.Backups, clusters []string) ([]string, error) {
			lines, err := b.Etcd(ctx, clusters...)
			if bucket, ok := b.OffSite.(*offsite.Bucket); ok && err == nil {
				warnOfDeletion(ctx, b.Progress, bucket)
			}

			return lines, err
		}),
	}
}

// warnOfDeletion warns if the credentials that write copies may delete them as well.
func warnOfDeletion(ctx context.Context, to io.Writer, bucket *offsite.Bucket) {
	switch bucket.MayDelete(ctx) {
	case offsite.DeletionAllowed:
		_, _ = fmt.Fprintln(to, "warning: the credentials of backup.s3 may delete copies when their retention ends: revoke "+
			"s3:DeleteObjectVersion (docs/recovery.md, Off-site)")
	case offsite.DeletionUnknown:
		_, _ = fmt.Fprintln(to, "warning: the server of backup.s3 does not say whether the credentials may delete copies: check "+
			"their permissions (docs/recovery.md, Off-site)")
	case offsite.DeletionDenied:
	}
}

func newBackupState(a *app) *cobra.Command {
	var folder string

	cmd := &cobra.Command{
		Use:   "state STACK",
		Short: "Export the state of a stack; its secrets stay encrypted",
		Long: `Writes the state, as pulumi stack export does, to a file that only its owner can read, with the time in
its name. pulumi stack import restores it.`,
		Example:           "  talos-proxmox backup state prod\n  talos-proxmox backup state prod --directory /mnt/backups",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completion(nil),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := a.Stack(args[0])
			if err != nil {
				return err
			}

			return backupState(cmd, s, folder)
		},
	}
	addDirectoryFlag(cmd, &folder)

	return cmd
}

func addDirectoryFlag(cmd *cobra.Command, folder *string) {
	cmd.Flags().StringVar(
		folder, "directory", "", "folder that the state is written to (default: ~/.pulumi-backups)",
	)
}

// backupState writes a copy of a stack's state to a folder and prints its path.
func backupState(cmd *cobra.Command, s cli.Stack, folder string) error {
	state, err := pulumiOf(s)(cmd.Context(), nil, "stack", "export", "--stack", s.Name)
	if err != nil {
		return fmt.Errorf("unable to export the state: %w", err)
	}

	if folder == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return fmt.Errorf("unable to find a folder for the state: %w; name one with --directory", err)
		}

		folder = filepath.Join(home, ".pulumi-backups")
	}

	if err := os.MkdirAll(folder, 0o700); err != nil {
		return fmt.Errorf("unable to create the folder of backups: %w", err)
	}

	path := filepath.Join(folder, cli.ShortName(s.Name)+"-"+time.Now().UTC().Format("20060102T150405Z")+".json")
	if err := os.WriteFile(path, state, 0o600); err != nil {
		return fmt.Errorf("unable to write the state: %w", err)
	}

	printLines(cmd, path)

	return nil
}
