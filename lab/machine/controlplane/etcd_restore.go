package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// SnapshotFile is the path to which a snapshot for a recovery is uploaded.
func (h Host) SnapshotFile() string { return h.path("etcd.snapshot") }

// RestoreEtcd restores the member's data from the uploaded snapshot, as a new cluster with this member only, and
// removes the snapshot.
func (h Host) RestoreEtcd(ctx context.Context, skipHash bool) error {
	etcdutl := func(arguments ...string) error {
		//nolint:gosec // the lab's own binary
		c := exec.CommandContext(ctx, h.Binary, append([]string{"etcdutl", "snapshot"}, arguments...)...)
		c.Dir = h.Dir

		out, err := c.CombinedOutput()
		if err != nil {
			lines := strings.Split(strings.TrimSpace(string(out)), "\n")

			return fmt.Errorf("%w: %s", err, lines[len(lines)-1])
		}

		return nil
	}

	if err := etcdutl("status", h.SnapshotFile()); err != nil {
		return fmt.Errorf("error verifying snapshot: %w", err)
	}

	// An interrupted recovery leaves incomplete data. It is restored beside the member's data, and moved when complete.
	recovered := h.path("etcd.recovered")
	if err := errors.Join(os.RemoveAll(recovered), os.RemoveAll(h.path("etcd"))); err != nil {
		return fmt.Errorf("unable to remove the data before a recovery: %w", err)
	}

	if err := etcdutl("restore", h.SnapshotFile(), "--data-dir="+recovered, "--name="+h.Name,
		"--initial-cluster="+InitialMember(h.Name, h.Etcd), "--initial-advertise-peer-urls="+peerURL(h.Etcd),
		fmt.Sprintf("--skip-hash-check=%t", skipHash)); err != nil {
		return errors.Join(fmt.Errorf("error recovering from the snapshot: %w", err), os.RemoveAll(recovered))
	}

	if err := os.Rename(recovered, h.path("etcd")); err != nil {
		return fmt.Errorf("unable to put the recovered data in place: %w", err)
	}

	if err := os.Remove(h.SnapshotFile()); err != nil {
		return fmt.Errorf("error deleting snapshot: %w", err)
	}

	return nil
}
