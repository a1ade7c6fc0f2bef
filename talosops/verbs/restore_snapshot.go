package verbs

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/checks"
	"talos-proxmox/talosops/cluster"
)

// newUnnamedFile returns an empty file for plain text. Nothing names it any more: however the process ends, its content
// is gone.
func newUnnamedFile() (*os.File, error) {
	file, err := os.CreateTemp("", "talosops-")
	if err == nil {
		err = os.Remove(file.Name())
	}

	if err != nil {
		return nil, fmt.Errorf("unable to create a file for decrypted data: %w", err)
	}

	return file, nil
}

// rewriteSnapshot replaces the snapshot with a copy of a higher revision: clients remember revisions that the snapshot
// does not have. It also reads the snapshot's objects.
func (r *restorer) rewriteSnapshot(to *os.File) (err error) {
	from, err := r.openSnapshot()
	if err != nil {
		return err
	}

	defer func() { _ = from.Close() }()

	if _, err = io.Copy(to, from); err != nil {
		return fmt.Errorf("unable to write the decrypted snapshot: %w", err)
	}

	r.openSnapshot = func() (io.ReadCloser, error) {
		info, err := to.Stat()
		if err != nil {
			return nil, fmt.Errorf("unable to read the decrypted snapshot: %w", err)
		}

		return io.NopCloser(io.NewSectionReader(to, 0, info.Size())), nil
	}

	if r.objects, err = r.readObjects(to); err != nil {
		return err
	}

	if names := r.objects.unreadable; len(names) > 0 {
		r.Print(r.req.Snapshot + ": unreadable objects, so that volumes may be missing below: " + strings.Join(names, ", "))
	}

	return r.raiseRevision(to)
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
