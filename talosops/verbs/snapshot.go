package verbs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"talos-proxmox/internal/backup"
	"talos-proxmox/internal/cli"
	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/checks"
	"talos-proxmox/talosops/cluster"
	"talos-proxmox/talosops/talosapi"
	"talos-proxmox/talosops/verb"
)

const snapshotHelp = `Takes a snapshot of etcd, checks it, and stores it encrypted with age to public keys:
docs/recovery.md#before says from where.

Older snapshots of the same cluster beyond keep (0 = all stay) are deleted. The key of the snapshot's seal is read from
configuration, a control plane's machine configuration, so that a talosconfig with the roles os:reader and
os:etcd:backup suffices; without it a control plane is asked for its own, which takes os:admin.

Exit status: 3 if the directory cannot be written, 1 otherwise.`

// streamTimeout is how long a stream may stall.
const streamTimeout = time.Minute

// snapshotRequest names the cluster, and where its snapshots are stored.
type snapshotRequest struct {
	request.Snapshot
	verb.Base
}

func (r *snapshotRequest) Problems() problem.List {
	return slices.Concat(r.OpenTalos(r.Talosconfig), verb.NodeProblems(r.ControlPlanes), backupProblems("", &r.Backup))
}

// backupProblems validates where snapshots are stored; nil = nowhere.
func backupProblems(path string, b *request.Backup) (problems problem.List) {
	if b == nil {
		return nil
	}

	if b.Name == "" || strings.ContainsRune(b.Name, filepath.Separator) {
		problems.Add(path+"name", b.Name, "cannot begin a file's name: use that of the stack and the cluster")
	}

	if b.Directory == "" {
		problems.Add(path+"directory", nil, "is missing: set where snapshots are kept")
	}

	if len(b.Recipients) == 0 {
		problems.Add(path+"recipients", nil, "is missing: set at least one public key of age (age-keygen makes a pair)")
	}

	for i, recipient := range b.Recipients {
		if err := backup.CheckRecipient(recipient); err != nil {
			problems.Add(fmt.Sprintf("%srecipients[%d]", path, i), nil, "%v", err)
		}
	}

	if b.Keep < 0 {
		problems.Add(path+"keep", b.Keep, "is not a number of snapshots: use 0 for all, or more")
	}

	return problems
}

// snapshotter takes a snapshot of the best member of etcd.
type snapshotter struct {
	*cluster.Cluster

	backup        request.Backup
	configuration string // of a control plane; empty = each one is asked for its own
	now           func() time.Time
	result        request.SnapshotResult
	folderErr     error // the folder cannot be written, whichever member is asked
	refusal       error // of every control plane: retrying is useless
}

func runSnapshot(ctx context.Context, s *verb.Session, req *snapshotRequest) (any, error) {
	snap := &snapshotter{Cluster: s.Cluster, backup: req.Backup, configuration: req.Configuration, now: time.Now}
	err := snap.wait(ctx)

	return snap.result, err
}

// takeSnapshot stores a snapshot before a change, if the stack has a backup, and returns its path.
func takeSnapshot(ctx context.Context, c *cluster.Cluster, target *request.Backup) (path string, err error) {
	if target == nil {
		c.Print("etcd: no snapshot is taken: the stack sets no backup.recipients")

		return "", nil
	}

	s := &snapshotter{Cluster: c, backup: *target, now: time.Now}
	if err := s.wait(ctx); err != nil {
		return "", err
	}

	c.Print("etcd: snapshot " + s.result.Snapshot)

	return s.result.Snapshot, nil
}

func (s *snapshotter) wait(ctx context.Context) error {
	err := s.Until(ctx, checks.Goal{
		Before: "a snapshot was taken", Missed: "there is no snapshot of etcd",
		Remedy: "start or repair one of these control planes",
	}, s.round)

	if s.folderErr != nil {
		return cli.WithStatus(request.StatusFolder, errors.Join(err, s.folderErr))
	}

	return errors.Join(err, s.refusal)
}

// candidate is a member that may provide a snapshot.
type candidate struct {
	request.Node

	status talosapi.EtcdStatus
}

func (s *snapshotter) round(ctx context.Context) checks.Report {
	current, candidates := s.inspectMembers(ctx)
	slices.SortStableFunc(candidates, compareCandidates)

	refusals := 0

	for _, c := range candidates {
		i := slices.IndexFunc(current, func(f checks.Finding) bool { return f.Node == c.Name })

		err := s.take(ctx, c.Node)
		if err == nil || s.folderErr != nil {
			return nil
		}

		current[i].Problem, current[i].Detail = "provides no snapshot", err.Error()

		if code := status.Code(err); code == codes.Unimplemented || code == codes.PermissionDenied {
			refusals++
		}
	}

	if refusals == len(current) {
		s.refusal = fmt.Errorf("there is no snapshot of etcd: %s", checks.GroupByNode(current)[0].String())

		return nil
	}

	return current
}

// inspectMembers asks every control plane for the status of its member.
func (s *snapshotter) inspectMembers(ctx context.Context) (checks.Report, []candidate) {
	statuses := make([]talosapi.EtcdStatus, len(s.ControlPlanes))
	current := checks.ParallelMap(s.ControlPlanes, func(i int, n request.Node) checks.Finding {
		f := checks.Finding{Node: n.Name, Check: cluster.EtcdCheck}

		var err error

		statuses[i], err = s.Talos.EtcdStatus(ctx, n.Address)
		switch {
		case err != nil:
			f.Problem, f.Detail = "does not answer", talosapi.Cause(err)
		case statuses[i].Learner:
			f.Problem = "is a learner, which has no snapshot yet"
		}

		return f
	})

	var candidates []candidate

	for i, n := range s.ControlPlanes {
		if current[i].Problem == "" {
			candidates = append(candidates, candidate{n, statuses[i]})
		}
	}

	return current, candidates
}

// compareCandidates orders members: those without errors first, then those with the highest index, then followers,
// since a snapshot makes its member read the whole database.
func compareCandidates(a, b candidate) int {
	btoi := func(is bool) int {
		if is {
			return 1
		}

		return 0
	}
	unhealthy := func(c candidate) int { return btoi(len(c.status.Errors) > 0 || !c.status.HasLeader) }

	return cmp.Or(
		unhealthy(a)-unhealthy(b), cmp.Compare(b.status.Applied, a.status.Applied), btoi(a.status.Leads)-btoi(b.status.Leads),
	)
}

// take stores a member's snapshot, complete or not at all.
func (s *snapshotter) take(ctx context.Context, n request.Node) error {
	s.PrintNote(ctx, n.Name, cluster.EtcdCheck, "taking a snapshot")

	source := memberSnapshot(s.Talos, n, s.configuration)
	snapshot, file, refused, err := storeSnapshot(ctx, s.backup, backup.Etcd, s.now(), source)

	switch {
	case refused != nil:
		return refused
	case err != nil:
		s.folderErr = err

		return err
	}

	s.result = request.SnapshotResult{
		Snapshot: file.Path, Bytes: snapshot.Size(), Digest: snapshot.Digest(), From: n.Name, Removed: file.Removed,
	}

	return nil
}

// snapshotSource provides the etcd data of a node.
type snapshotSource struct {
	stream func(ctx context.Context, to io.Writer) error
	check  func(*backup.Snapshot) error // whether the data is complete
	origin func(ctx context.Context) (backup.Origin, error)
}

// memberSnapshot returns the source of a node's own member. For configuration see [talosapi.Client.Origin].
func memberSnapshot(talos talosapi.API, n request.Node, configuration string) snapshotSource {
	return snapshotSource{
		stream: func(ctx context.Context, to io.Writer) error { return talos.Snapshot(ctx, n.Address, to) },
		check:  (*backup.Snapshot).Check,
		origin: func(ctx context.Context) (backup.Origin, error) {
			return talos.Origin(ctx, n.Address, configuration)
		},
	}
}

// storeSnapshot writes data of a source to a new file of a folder, encrypted and sealed. refused is an error of the
// source, err one of the folder.
func storeSnapshot(ctx context.Context, target request.Backup, kind backup.Kind, now time.Time, source snapshotSource) (
	snapshot *backup.Snapshot, file backup.File, refused, err error,
) {
	origin, refused := source.origin(ctx)
	if refused != nil {
		return nil, file, refused, nil
	}

	folder := backup.Folder{Path: target.Directory, Name: target.Name, Origin: &origin}

	file, err = folder.Write(kind, now, target.Recipients, target.Keep, func(to io.Writer) error {
		w, stop := newStallWriter(ctx, to)
		defer stop()

		snapshot = backup.NewSnapshot(w)

		refused = source.stream(w.ctx, snapshot)
		if refused == nil {
			refused = source.check(snapshot)
		}

		switch {
		case w.err != nil:
			refused = nil

			return w.err
		case refused != nil && w.ctx.Err() != nil: // the client mistakes an interrupted stream for a complete one
			refused = context.Cause(w.ctx)
		}

		return refused
	})

	return snapshot, file, refused, err
}

// stallWriter passes a stream on. It cancels its context when the stream stalls, and keeps the error of a failed write.
type stallWriter struct {
	ctx   context.Context
	to    io.Writer
	timer *time.Timer
	err   error
}

func newStallWriter(ctx context.Context, to io.Writer) (f *stallWriter, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(streamTimeout, func() { cancel(fmt.Errorf("no data for %s", streamTimeout)) })

	return &stallWriter{ctx: ctx, to: to, timer: timer}, func() {
		timer.Stop()
		cancel(nil)
	}
}

// Write implements io.Writer.
func (w *stallWriter) Write(b []byte) (int, error) {
	w.timer.Reset(streamTimeout)

	n, err := w.to.Write(b)
	if err != nil {
		w.err = err
	}

	return n, err
}
