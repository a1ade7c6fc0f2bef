// Command backup keeps what the clusters of a stack cannot be made again without, and restores them from it.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"talos-proxmox/internal/command"
	"talos-proxmox/internal/recovery"
	"talos-proxmox/stacks"
)

func main() { command.Main(newRoot()) }

// flags are those of every command.
type flags struct{ command.Project }

func newRoot() *cobra.Command {
	var f flags

	root := &cobra.Command{
		Use:   "backup",
		Short: "Keep what a stack's clusters cannot be made again without, and restore them",
		Long: `Keeps snapshots of etcd and machine secrets of a stack's clusters, encrypted with age to the public keys of
the stack's file (backup.recipients, backup.secretsRecipients), and restores a cluster's etcd from a snapshot.

All but reseal and rotate-ca read the stack's configuration and state, change neither, and take no lock. None shows a
secret.`,
		SilenceUsage:      true,
		SilenceErrors:     true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	f.Flags(root)
	root.AddCommand(newEtcd(&f), newSecrets(&f), newRestore(&f), newReseal(&f), newRotateCA(&f))

	return root
}

func (f *flags) backups(cmd *cobra.Command, stack string) (stacks.Backups, error) {
	p, err := f.Absolute()
	if err != nil {
		return stacks.Backups{}, err
	}

	deployed, err := stacks.ReadDeployed(
		cmd.Context(), recovery.CLI(p.Pulumi, p.Folder), stack, p.Folder, p.TalosOps, cmd.ErrOrStderr(),
	)

	return stacks.Backups{Deployed: deployed}, err
}

func newEtcd(f *flags) *cobra.Command {
	return &cobra.Command{
		Use:   "etcd STACK [CLUSTER…]",
		Short: "Keep an encrypted snapshot of each cluster's etcd",
		Long: `Takes a snapshot of etcd of each cluster, checks it, encrypts it to backup.recipients and keeps it in
backup.directory, the newest backup.keep of each cluster. A cluster that fails does not keep the others from theirs; the
status is 1 then.`,
		Example: "  backup etcd prod\n  backup etcd prod home edge",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := f.backups(cmd, args[0])
			if err != nil {
				return err
			}

			lines, err := b.Etcd(cmd.Context(), args[1:]...)
			printLines(cmd, lines)

			return err
		},
	}
}

func newSecrets(f *flags) *cobra.Command {
	return &cobra.Command{
		Use:   "secrets STACK [CLUSTER…]",
		Short: "Export each cluster's machine secrets, encrypted",
		Long: `Writes the machine secrets of each cluster (certificate authorities, tokens, the key of etcd's Secrets), which
are in the state only, as talosctl gen secrets writes them, encrypted to backup.secretsRecipients. A snapshot of etcd is
of no use without them. They change with rotate-ca only: export them once, after that, and after each
import of others.`,
		Example: "  backup secrets prod",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := f.backups(cmd, args[0])
			if err != nil {
				return err
			}

			lines, err := b.Secrets(cmd.Context(), time.Now(), args[1:]...)
			printLines(cmd, lines)

			return err
		},
	}
}

func newRestore(f *flags) *cobra.Command {
	var (
		r          stacks.Restore
		identities string
	)

	cmd := &cobra.Command{
		Use:   "restore STACK SNAPSHOT",
		Short: "Restore a cluster's etcd from a snapshot",
		Long: `Restores etcd of a cluster whose etcd has lost its majority or its data, from a snapshot that ` +
			"`backup etcd`" + ` or talosctl took. It refuses while etcd is healthy; see talosops restore --help for what it does
to which machine. What was written after the snapshot is lost. What control planes still have is kept in
backup.directory before they are wiped. It asks for the cluster's name; it may be interrupted and repeated. Run pulumi
up afterwards.`,
		Example: "  backup restore prod ~/.pulumi-backups/prod-home-etcd-20261122T030000Z.age --identities key.txt",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := f.backups(cmd, args[0])
			if err != nil {
				return err
			}

			r.Snapshot = args[1]
			if r.Cluster == "" && len(b.Plan.Clusters) == 1 {
				r.Cluster = b.Plan.Clusters[0].Name
			}

			if r.Identities, err = readIdentities(identities); err != nil {
				return err
			}

			if r.Confirm == "" {
				if r.Confirm, err = ask(cmd, r); err != nil {
					return err
				}
			}

			if err := b.Restore(cmd.Context(), r); err != nil {
				return err
			}

			printLines(cmd, []string{r.Cluster + ": etcd is restored; bring the stack up now, with a refresh"})

			return nil
		},
	}
	cmd.Flags().StringVar(&r.Cluster, "cluster", "", "which cluster (default: the only one of the stack)")
	cmd.Flags().StringVar(&identities, "identities", "", "file with secret keys of age, as age-keygen writes it")
	cmd.Flags().StringVar(&r.Confirm, "confirm", "", "the cluster's name: do not ask")
	cmd.Flags().BoolVar(
		&r.SkipHashCheck, "skip-hash-check", false,
		"the snapshot is a database that was copied from a machine's disk, without a digest",
	)
	cmd.Flags().BoolVar(
		&r.Unsealed, "unsealed", false, "the snapshot does not say which cluster it is of, and is of this one",
	)
	cmd.Flags().BoolVar(
		&r.Discard, "discard-survivors", false,
		"wipe what control planes still have of etcd even where it cannot be kept in backup.directory first",
	)
	cmd.Flags().DurationVar(&r.Timeout, "timeout", 0, "how long to wait at most (default: 15m)")

	return cmd
}

// readIdentities reads a file of secret keys, where one is named.
func readIdentities(path string) (string, error) {
	if path == "" {
		return "", nil
	}

	text, err := os.ReadFile(path) //nolint:gosec // the user names it
	if err != nil {
		return "", fmt.Errorf("unable to read the secret keys: %w", err)
	}

	return string(text), nil
}

// ask has a person type the cluster's name.
func ask(cmd *cobra.Command, r stacks.Restore) (string, error) {
	//nolint:gosec // a file descriptor
	if input, ok := cmd.InOrStdin().(*os.File); ok && !term.IsTerminal(int(input.Fd())) {
		return "", errors.New("cannot ask for confirmation without a terminal: pass --confirm with the cluster's name")
	}

	_, _ = fmt.Fprintf(
		cmd.OutOrStdout(), "Cluster %q goes back to %s; what was written since is lost.\nIts name: ", r.Cluster, r.Snapshot,
	)

	line, err := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("unable to read the answer: %w", err)
	}

	return strings.TrimSpace(line), nil
}

func printLines(cmd *cobra.Command, lines []string) {
	for _, line := range lines {
		_, _ = fmt.Fprintln(cmd.OutOrStdout(), line)
	}
}
