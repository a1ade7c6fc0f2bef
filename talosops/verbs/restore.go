package verbs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
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

It refuses while etcd is healthy. Every control plane must answer: one that does not could return later with the old
data. Remove a control plane that is gone for good from the configuration first. Those with etcd data save it, wipe it
(the partition of etcd if it has its own, otherwise EPHEMERAL; the machine configuration stays) and reboot, all at once;
the first one bootstraps the cluster from the snapshot, and the others join.

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
	openSnapshot  func() (io.ReadCloser, error) // returns the snapshot in plain text
	raiseRevision func(path string) error       // raises the revision of a snapshot in plain text

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
		Cluster: c, req: req, wipedAt: map[string]time.Time{}, survivors: map[string]string{}, raiseRevision: raiseRevision,
		openSnapshot: func() (io.ReadCloser, error) { return backup.Open(req.Snapshot, req.Identities) },
	}
}

func (r *restorer) wait(ctx context.Context) error {
	if err := r.verifySnapshot(); err != nil {
		return err
	}

	folder, err := os.MkdirTemp("", "talosops-restore-")
	if err != nil {
		return fmt.Errorf("unable to create a folder for the decrypted snapshot: %w", err)
	}

	defer func() { _ = os.RemoveAll(folder) }()

	if err := r.rewriteSnapshot(filepath.Join(folder, "etcd.db")); err != nil {
		return fmt.Errorf("%s: %w", r.req.Snapshot, err)
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

// observation is the state of a control plane in one round.
type observation struct {
	request.Node

	err           error // it could not be observed
	hasData       bool  // it has etcd data
	state         string
	memberAnswers bool
	status        talosapi.EtcdStatus
	members       []talosapi.Member
}

// awaitsCluster reports whether it has no data and waits for a cluster to join.
func (s observation) awaitsCluster() bool { return !s.hasData && s.state == "Preparing" }

// hasQuorum reports whether its member belongs to a cluster with a majority.
func (s observation) hasQuorum() bool { return s.hasData && s.memberAnswers && s.status.HasLeader }

func (r *restorer) round(ctx context.Context) checks.Report {
	observed := checks.ParallelMap(r.ControlPlanes, func(_ int, n request.Node) observation { return r.observe(ctx, n) })

	current := make(checks.Report, len(observed))
	for i, s := range observed {
		current[i] = s.finding()
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
	case healthy >= 0 && !r.touched:
		r.abort = fmt.Errorf("etcd of cluster %s is healthy (%s sees a leader; members: %s), so nothing was changed. "+
			"To go back to the snapshot nevertheless, wipe each control plane before: "+
			"talosctl reset --graceful=false --reboot --system-labels-to-wipe EPHEMERAL",
			r.req.Cluster, observed[healthy].Name, cluster.MemberLabels(observed[healthy].members))

		return nil
	case healthy >= 0 && !r.sendAttempted:
		r.abort = fmt.Errorf("someone bootstrapped a new, empty cluster on %s before the snapshot was restored (talosctl bootstrap, or an "+
			"up with bootstrapEmpty?): end that, wipe its EPHEMERAL partition with talosctl reset, then run the same again",
			observed[healthy].Name)

		return nil
	case healthy >= 0:
		if r.allVoters(observed, observed[healthy].members) {
			return nil
		}

		member := observed[healthy].Name

		return append(current, checks.Problem(member, cluster.EtcdCheck, "waits until all members are voters", "")...)
	case r.leaderlessSince.IsZero() || !r.verifyOrigin(ctx, observed[0].Node, &current[0]):
	case hasData && r.acceptedAt.IsZero():
		if time.Since(r.leaderlessSince) > leaderlessGrace {
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

func (r *restorer) observe(ctx context.Context, n request.Node) observation {
	s := observation{Node: n}

	services, err := r.Talos.Services(ctx, n.Address)
	if err == nil {
		s.hasData, err = r.Talos.HasEtcdData(ctx, n.Address)
	}

	if s.err = err; err != nil {
		return s
	}

	if i := slices.IndexFunc(services, func(s talosapi.Service) bool { return s.ID == "etcd" }); i >= 0 {
		s.state = services[i].State
	}

	if !s.hasData {
		return s
	}

	s.status, err = r.Talos.EtcdStatus(ctx, n.Address)
	if s.memberAnswers = err == nil; s.memberAnswers {
		// Without a leader, no member answers this.
		s.members, _ = r.Talos.Members(ctx, n.Address)
	}

	return s
}

// finding returns the progress of a control plane.
func (s observation) finding() checks.Finding {
	f := checks.Finding{Node: s.Name, Check: cluster.EtcdCheck}
	switch {
	case s.err != nil:
		return cluster.Unreachable(s.Node, cluster.EtcdCheck, s.err)[0]
	case s.hasQuorum() && !s.status.Learner:
		f.Note = "is a member"
	case s.hasQuorum():
		f.Problem = "is a learner"
	case s.hasData && s.memberAnswers:
		f.Problem = "has data, and sees no leader"
	case s.hasData:
		f.Problem = "has data, and its member does not answer"
	case s.state == "":
		f.Problem = "has not started"
	case s.awaitsCluster():
		f.Problem = "waits for a cluster to join"
	default:
		f.Problem = "is " + strings.ToLower(s.state)
	}

	return f
}

// allVoters reports whether all control planes are voting members of the restored cluster.
func (r *restorer) allVoters(observed []observation, members []talosapi.Member) bool {
	voters := map[string]bool{}
	for _, m := range members {
		voters[m.Label()] = !m.Learner
	}

	return !slices.ContainsFunc(observed, func(s observation) bool {
		return !s.hasQuorum() || s.status.Learner || !voters[s.Name]
	})
}

// wipe saves the data of control planes that have any, and makes them wipe it; they reboot afterwards.
func (r *restorer) wipe(ctx context.Context, observed []observation, current checks.Report) {
	if r.abort = r.saveSurvivors(ctx, observed); r.abort != nil {
		return
	}

	for i, s := range observed {
		if at, ok := r.wipedAt[s.Name]; !s.hasData || ok && time.Since(at) < resendAfter {
			continue
		}

		r.touched = true

		err := r.Talos.WipeEtcd(ctx, s.Address)
		if err != nil {
			current[i].Problem, current[i].Detail = "cannot be wiped", err.Error()

			continue
		}

		r.wipedAt[s.Name] = time.Now()
		r.PrintNote(ctx, s.Name, cluster.EtcdCheck, "wiping its data and rebooting")
	}
}
