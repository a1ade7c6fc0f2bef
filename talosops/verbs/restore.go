package verbs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"talos-proxmox/internal/backup"
	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/checks"
	"talos-proxmox/talosops/cluster"
	"talos-proxmox/talosops/talosapi"
	"talos-proxmox/talosops/verb"
)

const restoreHelp = `Restores etcd from a snapshot, for a cluster whose etcd has lost its majority or its data:
docs/recovery.md#the-majority-of-etcd-is-lost says how.

It refuses while etcd is healthy, unless healthy is set. Every control plane must answer: one that does not could return
later with the old data. Remove a control plane that is gone for good from the configuration first. Those with etcd data
save it, wipe it (the partition of etcd if it has its own, otherwise EPHEMERAL; the machine configuration stays) and
reboot, all at once; the first one bootstraps the cluster from the snapshot, and the others join.

Volumes on EPHEMERAL are lost with it: user volumes that are directories, and local and hostPath volumes with a claim.
loseVolumes must name all of them. Control planes of the snapshot that are not among controlPlanes must not run:
running says which machines do, gone which certainly do not.

confirm must be the cluster's name. unsealed accepts a snapshot that does not say which cluster it belongs to,
discardSurvivors wipes data that cannot be saved.`

// leaderlessGrace is how long no control plane may see a leader before etcd data is wiped: members that are starting
// need a while to elect one.
const leaderlessGrace = time.Minute

// resendAfter is how long a control plane may take to start from a snapshot before it counts as rebooted, which loses
// the snapshot.
const resendAfter = 5 * time.Minute

// restoreRequest names the cluster and the snapshot to restore; identities are secret and must not appear in any
// message.
type restoreRequest struct {
	request.Restore
	verb.Base
}

func (r *restoreRequest) Problems() problem.List {
	problems := append(r.OpenTalos(r.Talosconfig), verb.NodeProblems(r.ControlPlanes)...)
	if r.Snapshot == "" {
		problems.Add("snapshot", nil, "is missing: set the path of a snapshot")
	}

	switch {
	case r.Cluster == "":
		problems.Add("cluster", nil, "is missing: set the cluster's name")
	case r.Confirm != r.Cluster:
		problems.Add("confirm", r.Confirm, "is not the cluster's name: a restore loses what was written since the snapshot; "+
			"set %q to confirm it", r.Cluster)
	}

	return append(problems, backupProblems("backup.", r.Backup)...)
}

// restorer restores etcd. Each round decides by the state in which it finds the control planes.
type restorer struct {
	*cluster.Cluster

	req           *restoreRequest
	openSnapshot  func() (io.ReadCloser, error)       // returns the snapshot in plain text
	readObjects   func(*os.File) (etcdObjects, error) // reads a snapshot or database in plain text
	raiseRevision func(*os.File) error                // raises the revision of a snapshot in plain text
	objects       etcdObjects                         // of the snapshot
	wipes         map[string]talosapi.EtcdWipe        // what goes with the etcd data of control planes, by name

	// origin is the cluster that the snapshot names; nil = it names none, or this cluster was verified to be that one.
	origin *backup.Origin

	leaderlessSince time.Time            // since when all control planes answer and none sees a leader
	touched         bool                 // this run has changed a machine
	survivors       map[string]string    // paths of saved etcd data, by control plane
	wipedAt         map[string]time.Time // when a control plane accepted its wipe
	sendAttempted   bool                 // the snapshot was sent, with any result
	acceptedAt      time.Time            // when the first control plane accepted the snapshot
	abort           error                // why the restore must end
}

func runRestore(ctx context.Context, s *verb.Session, req *restoreRequest) (any, error) {
	r := newRestorer(s.Cluster, req)

	var err error
	if r.origin, err = backup.ReadOrigin(req.Snapshot, req.Identities); err != nil {
		return nil, err
	}

	err = r.wait(ctx)

	return request.RestoreResult{Restored: true, Members: verb.SortedNames(req.ControlPlanes), Survivors: r.survivors}, err
}

func newRestorer(c *cluster.Cluster, req *restoreRequest) *restorer {
	return &restorer{
		Cluster: c, req: req, wipedAt: map[string]time.Time{}, survivors: map[string]string{},
		wipes: map[string]talosapi.EtcdWipe{}, raiseRevision: raiseRevision, readObjects: readEtcdObjects,
		openSnapshot: func() (io.ReadCloser, error) { return backup.Open(req.Snapshot, req.Identities) },
	}
}

func (r *restorer) wait(ctx context.Context) error {
	if err := r.verifySnapshot(); err != nil {
		return err
	}

	plain, err := newUnnamedFile()
	if err != nil {
		return err
	}

	defer func() { _ = plain.Close() }()

	if err := r.rewriteSnapshot(plain); err != nil {
		return fmt.Errorf("%s: %w", r.req.Snapshot, err)
	}

	if err := r.refuseFormerControlPlanes(); err != nil {
		return err
	}

	err = r.Until(ctx, checks.Goal{
		Before: "etcd was restored", Missed: "etcd is not restored",
		Remedy: "start or repair these control planes, or take one that is gone for good out of the configuration",
	}, r.round)

	return errors.Join(err, r.abort)
}

// verifySnapshot reads the whole snapshot before any machine is changed.
func (r *restorer) verifySnapshot() error {
	from, err := r.openSnapshot()
	if err != nil {
		return err
	}

	defer func() { _ = from.Close() }()

	snapshot := backup.NewSnapshot(io.Discard)
	if _, err := io.Copy(snapshot, from); err != nil {
		return fmt.Errorf("unable to read %s: %w", r.req.Snapshot, err)
	}

	if err := snapshot.Check(); err != nil && !r.req.SkipHashCheck {
		return fmt.Errorf("%s: %w: choose another one", r.req.Snapshot, err)
	}

	if r.origin == nil && !r.req.Unsealed {
		return fmt.Errorf("%s does not say which cluster it belongs to, unlike those of talos-proxmox backup etcd: if you know that "+
			"it belongs to cluster %s, repeat with --unsealed", r.req.Snapshot, r.req.Cluster)
	}

	return nil
}

func (r *restorer) round(ctx context.Context) checks.Report {
	observed := checks.ParallelMap(r.ControlPlanes, func(_ int, n request.Node) observation { return r.observe(ctx, n) })

	current := make(checks.Report, len(observed))
	for i, s := range observed {
		current[i] = s.finding()
		if r.req.Healthy && !r.sendAttempted && current[i].Problem == "" {
			current[i].Problem = "has the data that the snapshot replaces"
		}
	}

	unreachable := slices.ContainsFunc(observed, func(s observation) bool { return s.err != nil })
	hasData := slices.ContainsFunc(observed, func(s observation) bool { return s.hasData })
	allWait := !slices.ContainsFunc(observed, func(s observation) bool { return !s.awaitsCluster() })

	healthy := slices.IndexFunc(observed, observation.hasQuorum)
	if healthy >= 0 || unreachable {
		r.leaderlessSince = time.Time{}
	} else if r.leaderlessSince.IsZero() {
		r.leaderlessSince = time.Now()
	}

	switch {
	case healthy >= 0 && !r.touched && !r.req.Healthy:
		r.abort = fmt.Errorf("etcd of cluster %s is healthy (%s sees a leader; members: %s), so nothing was changed. "+
			"To go back to the snapshot nevertheless, repeat with --replace-healthy",
			r.req.Cluster, observed[healthy].Name, cluster.MemberLabels(observed[healthy].members))

		return nil
	case healthy >= 0 && !r.sendAttempted && !r.req.Healthy:
		r.abort = fmt.Errorf("someone bootstrapped a new, empty cluster on %s before the snapshot was restored (talosctl bootstrap, or an "+
			"up with bootstrapEmpty?): end that, then run the same again with --replace-healthy", observed[healthy].Name)

		return nil
	case healthy >= 0 && r.sendAttempted:
		if r.allVoters(observed, observed[healthy].members) {
			return nil
		}

		member := observed[healthy].Name

		return append(current, checks.Problem(member, cluster.EtcdCheck, "waits until all members are voters", "")...)
	case unreachable || !r.verifyOrigin(ctx, observed[0].Node, &current[0]):
	case hasData && r.acceptedAt.IsZero():
		approved := r.approveWipes(ctx, observed, current)
		if approved && (r.req.Healthy || time.Since(r.leaderlessSince) > leaderlessGrace) {
			r.wipe(ctx, observed, current)
		}
	case allWait && time.Since(r.acceptedAt) > resendAfter:
		r.sendSnapshot(ctx, observed[0].Node, &current[0])
	}

	if r.abort != nil {
		return nil
	}

	return current
}
