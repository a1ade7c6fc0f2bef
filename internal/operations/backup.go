package operations

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"talos-proxmox/internal/backup"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/talos"
)

// Backups stores and restores what is needed to recover the clusters of a stack: snapshots of etcd and machine
// secrets.
type Backups struct{ Deployed }

// Etcd stores an encrypted snapshot of etcd of each named cluster, or of all, and returns a line for each copy. A
// failure for one cluster does not affect the others.
func (b Backups) Etcd(ctx context.Context, names ...string) (lines []string, err error) {
	if len(b.Plan.Backup.Recipients) == 0 {
		return nil, errors.New("backup.recipients: there is no public key to encrypt snapshots to: make a pair with " +
			"age-keygen, keep the secret key elsewhere, and set its public key in the stack's file")
	}

	clusters, err := b.clusters(names)
	if err != nil {
		return nil, err
	}

	state, err := b.readState(ctx)
	if err != nil {
		return nil, err
	}

	var failures []error

	for _, c := range clusters {
		copies, err := b.takeSnapshot(ctx, c, state)
		for _, line := range copies {
			lines = append(lines, c.Name+": "+line)
		}

		if err != nil {
			failures = append(failures, fmt.Errorf("cluster %s: %w", c.Name, err))
		}
	}

	return lines, errors.Join(failures...)
}

// takeSnapshot stores a snapshot in the folder and off-site, and returns a line for each copy. If the folder fails, the
// off-site copy is made from a snapshot of its own, and the error is that of the folder.
func (b Backups) takeSnapshot(ctx context.Context, c spec.Cluster, state lastState) (lines []string, err error) {
	req, err := b.snapshotRequest(c, state)
	if err != nil {
		return nil, err
	}

	taken, err := b.requestSnapshot(ctx, req)

	var ended *exec.ExitError

	switch {
	case err == nil:
		line := fmt.Sprintf("%s, %d KiB from %s", taken.Snapshot, (taken.Bytes+1023)/1024, taken.From)
		if len(taken.Removed) > 0 {
			line += fmt.Sprintf("; %d older removed", len(taken.Removed))
		}

		lines = append(lines, line)
	case b.OffSite != nil && errors.As(err, &ended) && ended.ExitCode() == request.StatusFolder:
		temporary, failed := os.MkdirTemp("", "talos-proxmox-")
		if failed != nil {
			return nil, errors.Join(err, failed)
		}
		defer os.RemoveAll(temporary) //nolint:errcheck // its contents are encrypted

		req.Directory = temporary

		var retryErr error
		if taken, retryErr = b.requestSnapshot(ctx, req); retryErr != nil {
			return nil, errors.Join(err, retryErr)
		}
	default:
		return nil, err
	}

	if b.OffSite == nil {
		return lines, nil
	}

	address, failed := b.OffSite.Put(ctx, taken.Snapshot, time.Now())
	if failed != nil {
		return lines, errors.Join(err, failed)
	}

	return append(lines, address), err
}

func (b Backups) requestSnapshot(ctx context.Context, req request.Snapshot) (taken request.SnapshotResult, err error) {
	out, err := b.talosops(ctx, "snapshot", req)
	if err != nil {
		return taken, err
	}

	if err := json.Unmarshal(out, &taken); err != nil {
		return taken, fmt.Errorf("talosops snapshot printed an invalid result: %w", err)
	}

	return taken, nil
}

// snapshotRequest returns the request for talosops snapshot of a cluster.
func (b Backups) snapshotRequest(c spec.Cluster, state lastState) (req request.Snapshot, err error) {
	req = request.Snapshot{
		Common: controlPlanes(c, 0),
		Backup: request.Backup{
			Name: b.Plan.BackupName(c), Directory: b.directory(), Recipients: b.Plan.Backup.Recipients, Keep: b.Plan.Backup.Keep,
		},
	}

	for _, n := range req.ControlPlanes {
		req.Configuration = cmp.Or(req.Configuration, state.configurations[n.Address.String()])
	}

	newClient := talos.Authority.EtcdBackup
	if req.Configuration == "" { // a state that was resealed: talosops asks a control plane for its own
		newClient = talos.Authority.TemporaryAdministrator
	}

	if req.Talosconfig, err = state.talosconfig(c, newClient); err != nil {
		return req, b.missingError(c, "machine secrets")
	}

	return req, nil
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

	state, err := b.readState(ctx)
	if err != nil {
		return nil, err
	}

	for _, c := range clusters {
		machine := state.secretsOf(c.Name).machine
		if machine == nil {
			return lines, b.missingError(c, "machine secrets")
		}

		bundle, err := talos.SecretsBundle(machine)
		if err != nil {
			return lines, fmt.Errorf("cluster %s: %w", c.Name, err)
		}

		folder := backup.Folder{Path: b.directory(), Name: b.Plan.BackupName(c), ID: state.backupID(c)}

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

// backupID returns a cluster's id in the names of its backups; empty if the state has no configuration of a control
// plane.
func (l lastState) backupID(c spec.Cluster) string {
	for _, n := range c.ControlPlanes {
		if authority := talos.EtcdAuthority(l.configurations[n.Address.Addr().String()]); authority != nil {
			return backup.ClusterID(authority)
		}
	}

	return ""
}

// newestOffSite returns the newest off-site copy, or why it is not known; nil = there is no off-site storage.
func (b Backups) newestOffSite(ctx context.Context, c spec.Cluster, id string) *request.OffSite {
	if b.OffSite == nil {
		return nil
	}

	var newest request.OffSite

	found, err := b.OffSite.Newest(ctx, b.Plan.BackupName(c), id, time.Now())
	if err != nil {
		newest.Problem = err.Error()
	} else {
		newest.Snapshot, newest.Taken, newest.Future = found.Newest, found.Created, found.Future
	}

	return &newest
}

// directory returns the folder of backups; ~/ stays as it is.
func (b Backups) directory() string {
	if d := b.Plan.Backup.Directory; strings.HasPrefix(d, "~/") || filepath.IsAbs(d) {
		return d
	}

	return filepath.Join(b.Project, b.Plan.Backup.Directory)
}
