package verbs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/checks"
	"talos-proxmox/talosops/cluster"
)

// rewriteSnapshot replaces the snapshot with a copy of a higher revision: clients remember revisions that the snapshot
// does not have.
func (r *restorer) rewriteSnapshot(path string) (err error) {
	from, err := r.openSnapshot()
	if err != nil {
		return err
	}

	defer func() { _ = from.Close() }()

	to, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // in a folder of its own
	if err != nil {
		return fmt.Errorf("unable to write the decrypted snapshot: %w", err)
	}

	_, err = io.Copy(to, from)
	if err := errors.Join(err, to.Close()); err != nil {
		return fmt.Errorf("unable to write the decrypted snapshot: %w", err)
	}

	r.openSnapshot = func() (io.ReadCloser, error) { return os.Open(path) } //nolint:gosec // as above

	return r.raiseRevision(path)
}

// verifyOrigin reports whether the snapshot is of this cluster, according to the secret in a control plane's machine
// configuration.
func (r *restorer) verifyOrigin(ctx context.Context, first request.Node, current *checks.Finding) bool {
	if r.origin == nil {
		return true
	}

	own, err := r.Talos.Origin(ctx, first.Address, "")
	if err != nil {
		current.Problem, current.Detail = "does not report which cluster it belongs to", err.Error()

		return false
	}

	if !r.origin.Matches(own) {
		r.abort = fmt.Errorf("%s belongs to another cluster, or is not what was sealed: it names %s (%s), made %s by "+
			"Talos %s and Kubernetes %s; cluster %s is %s. Nothing was changed: choose a snapshot of this cluster",
			r.req.Snapshot, r.origin.Cluster, r.origin.ID, r.origin.Time.Format(time.RFC3339), r.origin.Talos,
			r.origin.Kubernetes, r.req.Cluster, own.ID)

		return false
	}

	r.PrintNote(ctx, first.Name, cluster.EtcdCheck, fmt.Sprintf(
		"the snapshot belongs to its cluster, made %s by Talos %s and Kubernetes %s",
		r.origin.Time.Format(time.RFC3339), r.origin.Talos, r.origin.Kubernetes,
	))
	r.origin = nil

	return true
}

// sendSnapshot makes the first control plane bootstrap the cluster from the snapshot.
func (r *restorer) sendSnapshot(ctx context.Context, first request.Node, current *checks.Finding) {
	from, err := r.openSnapshot()
	if err != nil {
		r.abort = err

		return
	}

	defer func() { _ = from.Close() }()

	r.touched, r.sendAttempted = true, true
	r.PrintNote(ctx, first.Name, cluster.EtcdCheck, "sending the snapshot")

	err = r.Talos.Recover(ctx, first.Address, from)
	switch {
	case err == nil:
		r.acceptedAt = time.Now()
		r.PrintNote(ctx, first.Name, cluster.EtcdCheck, "bootstrapping the cluster from the snapshot")
	case status.Code(err) == codes.AlreadyExists: // the next round finds out why
	default:
		current.Problem, current.Detail = "does not accept the snapshot yet", err.Error()
	}
}
