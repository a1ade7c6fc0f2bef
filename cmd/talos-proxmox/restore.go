package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"talos-proxmox/internal/cli"
	"talos-proxmox/internal/operations"
)

func newRestore(a *app) *cobra.Command {
	var (
		r          operations.RestoreOptions
		identities string
	)

	cmd := &cobra.Command{
		Use:   "restore STACK SNAPSHOT",
		Short: "Restore a cluster's etcd from a snapshot",
		Long: `Restores etcd of a cluster that has lost its etcd majority or data, from a snapshot of talos-proxmox backup
etcd or talosctl: a file, or a copy in backup.s3 by its address, s3://…, which talos-proxmox backup etcd and status
print (with ?versionId= for an older version). It refuses while etcd is healthy, unless --replace-healthy. talosops
restore --help describes each step. Everything written after the snapshot is lost. The data that control planes still
have is saved to backup.directory before they are wiped. Where that would delete volumes of pods, it names them, and
refuses without --lose-volumes. It refuses while a control plane that is not in the stack file may still run. It asks
for the cluster's name, and can be interrupted and repeated. Run pulumi up --refresh afterwards.`,
		Example:           "  talos-proxmox restore prod ~/.pulumi-backups/prod-home-etcd-20261122T030000Z.age --identities key.txt",
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: a.completion(nil),
		RunE: func(cmd *cobra.Command, args []string) error {
			deployed, err := a.readDeployed(cmd, args[0])
			if err != nil {
				return err
			}

			r.Snapshot, r.Cluster = args[1], selectCluster(deployed.Plan, r.Cluster)

			if r.Identities, err = readIdentities(identities); err != nil {
				return err
			}

			if !strings.Contains(r.Snapshot, "://") {
				if _, err := os.Stat(r.Snapshot); err != nil {
					return fmt.Errorf("unable to read the snapshot: %w", err)
				}
			}

			if r.Confirm == "" {
				if r.Confirm, err = cli.TypeName(cmd, fmt.Sprintf(
					"Cluster %q is restored from %s; everything written since is lost", r.Cluster, r.Snapshot,
				)); err != nil {
					return err
				}
			}

			if err := (operations.Backups{Deployed: deployed}).Restore(cmd.Context(), r); err != nil {
				return err
			}

			printLines(cmd, r.Cluster+": etcd is restored; run pulumi up --refresh now")

			return nil
		},
	}
	addClusterFlag(cmd, &r.Cluster)
	addIdentitiesFlag(cmd, &identities)
	cmd.Flags().StringVar(&r.Confirm, "confirm", "", "the cluster's name: do not ask")
	cmd.Flags().BoolVar(
		&r.SkipHashCheck, "skip-hash-check", false,
		"the snapshot is a database copied from a machine's disk, without a digest",
	)
	cmd.Flags().BoolVar(
		&r.Unsealed, "unsealed", false, "accept a snapshot without a seal, which is of this cluster",
	)
	cmd.Flags().BoolVar(
		&r.Discard, "discard-survivors", false,
		"wipe etcd data of control planes even if it cannot be saved to backup.directory first",
	)
	cmd.Flags().BoolVar(
		&r.Healthy, "replace-healthy", false, "go back to the snapshot although etcd is healthy",
	)
	cmd.Flags().StringSliceVar(
		&r.LoseVolumes, "lose-volumes", nil,
		"volumes on control planes that may be lost, as the refusal names them; may be repeated",
	)
	cmd.Flags().StringSliceVar(
		&r.Gone, "gone", nil, "control planes that are not in the stack file and certainly do not run; "+
			operations.NoneGone+" if Proxmox does not answer and there is none; may be repeated",
	)
	cmd.Flags().DurationVar(&r.Timeout, "timeout", 0, "how long to wait at most (default: 15m)")

	return cmd
}

func addIdentitiesFlag(cmd *cobra.Command, path *string) {
	cmd.Flags().StringVar(path, "identities", "", "file with private age keys, as written by age-keygen")
}

// readIdentities reads a file of private keys; an empty path has none.
func readIdentities(path string) (string, error) {
	if path == "" {
		return "", nil
	}

	text, err := os.ReadFile(path) //nolint:gosec // the user names it
	if err != nil {
		return "", fmt.Errorf("unable to read the private keys: %w", err)
	}

	return string(text), nil
}
