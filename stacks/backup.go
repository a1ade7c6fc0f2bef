package stacks

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"talos-proxmox/internal/backup"
	"talos-proxmox/internal/recovery"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/talos"
)

// How the resource of a cluster's machine secrets is called.
const (
	typeSecrets   = "talos:machine/secrets:Secrets" //nolint:gosec // a type
	secretsSuffix = "-secrets"
)

// Backups keeps what clusters of a stack cannot be made again without, and restores them from it.
type Backups struct{ Deployed }

// Etcd keeps an encrypted snapshot of etcd of each named cluster, or of all, and returns a line for each. One that
// fails does not keep the others from theirs.
func (b Backups) Etcd(ctx context.Context, names ...string) (lines []string, err error) {
	if len(b.Plan.Backup.Recipients) == 0 {
		return nil, errors.New("backup.recipients: there is no public key to encrypt snapshots to: make a pair with " +
			"age-keygen, keep the secret key elsewhere, and set its public key in the stack's file")
	}

	clusters, err := b.clusters(names)
	if err != nil {
		return nil, err
	}

	left, err := b.readLeft(ctx)
	if err != nil {
		return nil, err
	}

	var failed []error

	for _, c := range clusters {
		question, err := b.snapshot(c, left)
		if err != nil {
			return nil, err
		}

		out, err := b.talosops(ctx, "snapshot", question)
		if err != nil {
			failed = append(failed, fmt.Errorf("cluster %s: %w", c.Name, err))

			continue
		}

		var taken request.Taken
		if err := json.Unmarshal(out, &taken); err != nil {
			return lines, fmt.Errorf("talosops snapshot printed something that is not a result: %w", err)
		}

		line := fmt.Sprintf("%s: %s, %d KiB from %s", c.Name, taken.Snapshot, (taken.Bytes+1023)/1024, taken.From)
		if len(taken.Removed) > 0 {
			line += fmt.Sprintf("; %d older removed", len(taken.Removed))
		}

		lines = append(lines, line)
	}

	return lines, errors.Join(failed...)
}

// snapshot is what talosops snapshot reads of a cluster.
func (b Backups) snapshot(c spec.Cluster, left left) (about request.Snapshot, err error) {
	about = request.Snapshot{
		Common: controlPlanes(c, 0), Name: b.fileName(c), Directory: b.directory(),
		Recipients: b.Plan.Backup.Recipients, Keep: b.Plan.Backup.Keep,
	}

	for _, n := range about.ControlPlanes {
		about.Configuration = cmp.Or(about.Configuration, left.configurations[n.Address])
	}

	about.Talosconfig, err = left.talosconfig(c, talos.Authority.Keeper)
	if err != nil || about.Configuration == "" {
		return about, b.missing(c, "machine secrets and configurations")
	}

	return about, nil
}

// Secrets exports the machine secrets of each named cluster, or of all, and returns a line for each.
func (b Backups) Secrets(ctx context.Context, now time.Time, names ...string) (lines []string, err error) {
	if len(b.Plan.Backup.SecretsRecipients) == 0 {
		return nil, errors.New("backup.secretsRecipients: there is no public key to encrypt machine secrets to: use one " +
			"of someone who does not have the secret key of backup.recipients")
	}

	clusters, err := b.clusters(names)
	if err != nil {
		return nil, err
	}

	_, deployment, err := recovery.ReadState(ctx, b.Pulumi, b.Stack, "--show-secrets")
	if err != nil {
		return nil, err
	}

	bundles := map[string][]byte{}

	for _, r := range deployment.Resources {
		cluster, ours := strings.CutSuffix(r.URN.Name(), secretsSuffix)
		if !ours || r.Type != typeSecrets {
			continue
		}

		values, _ := recovery.Reveal(r.Outputs)["machineSecrets"].(map[string]any)
		if bundles[cluster], err = talos.SecretsBundle(values); err != nil {
			return nil, fmt.Errorf("cluster %s: %w", cluster, err)
		}
	}

	for _, c := range clusters {
		bundle, ok := bundles[c.Name]
		if !ok {
			return lines, b.missing(c, "machine secrets")
		}

		folder := backup.Folder{Path: b.directory(), Name: b.fileName(c)}

		file, err := folder.Write(backup.Secrets, now, b.Plan.Backup.SecretsRecipients, 0, func(to io.Writer) error {
			_, err := to.Write(bundle)

			return err
		})
		if err != nil {
			return lines, fmt.Errorf("cluster %s: %w", c.Name, err)
		}

		lines = append(lines, fmt.Sprintf("%s: %s", c.Name, file.Path))
	}

	return lines, nil
}

// Restore says how a cluster's etcd is restored.
type Restore struct {
	Cluster       string
	Confirm       string        // the cluster's name again
	Snapshot      string        // path, encrypted or not
	Identities    string        // secret keys of age, as age-keygen writes them; secret
	SkipHashCheck bool          // for a database that was copied from a machine's disk
	Unsealed      bool          // for a snapshot that does not say which cluster it is of
	Discard       bool          // what control planes still have, where it cannot be kept
	Timeout       time.Duration // 0 = that of talosops restore
}

// Restore restores a cluster's etcd from a snapshot, see talosops restore.
func (b Backups) Restore(ctx context.Context, r Restore) error {
	clusters, err := b.clusters([]string{r.Cluster})
	if err != nil {
		return err
	}

	talosconfigs, err := b.configs(ctx, Talosconfigs, clusters)
	if err != nil {
		return err
	}

	snapshot, err := filepath.Abs(r.Snapshot)
	if err != nil {
		return fmt.Errorf("unable to find the snapshot %s: %w", r.Snapshot, err)
	}

	var kept *request.Backup
	if recipients := b.Plan.Backup.Recipients; len(recipients) > 0 {
		kept = &request.Backup{Name: b.fileName(clusters[0]), Directory: b.directory(), Recipients: recipients}
	}

	_, err = b.talosops(ctx, "restore", request.Restore{
		Common:      controlPlanes(clusters[0], r.Timeout),
		Talosconfig: talosconfigs[r.Cluster],
		Cluster:     r.Cluster,
		Confirm:     r.Confirm,
		Snapshot:    snapshot, Identities: r.Identities, SkipHashCheck: r.SkipHashCheck,
		Unsealed: r.Unsealed, Backup: kept, DiscardSurvivors: r.Discard,
	})

	return err
}

// directory is where backups are; the user's home stays ~/.
func (b Backups) directory() string {
	if d := b.Plan.Backup.Directory; strings.HasPrefix(d, "~/") || filepath.IsAbs(d) {
		return d
	}

	return filepath.Join(b.Project, b.Plan.Backup.Directory)
}

// fileName begins the names of a cluster's backups.
func (b Backups) fileName(c spec.Cluster) string { return b.Plan.Stack + "-" + c.Name }
