package verbs

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"talos-proxmox/internal/backup"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/talos"
	"talos-proxmox/talosops/cluster"
	"talos-proxmox/talosops/kube"
)

func (q *statusQuery) checkGPUs(a *nodeResult, n kube.Node) {
	for _, e := range q.req.GPUs {
		if e.Node != a.Name {
			continue
		}

		offer := request.Offer{Resource: cluster.GPUResource(e), Offered: n.Offers(cluster.GPUResource(e)), Planned: e.Count}
		a.GPUs = append(a.GPUs, offer)

		if offer.Offered < offer.Planned {
			a.warn("it offers %d of %d %s", offer.Offered, offer.Planned, offer.Resource)
		}
	}
}

// checkCluster adds what concerns no single node.
func (q *statusQuery) checkCluster(s *request.ClusterStatus, answers []nodeResult, listErr error) {
	if listErr != nil {
		unlisted := cluster.NodesUnknown(s.Cluster, cluster.NodeCheck, listErr)[0]
		s.Care.Add(s.Cluster, nil, "%s: %s", unlisted.Problem, unlisted.Detail)
	}

	if slices.ContainsFunc(answers, func(a nodeResult) bool { return a.member }) {
		quorum := slices.ContainsFunc(answers, func(a nodeResult) bool { return a.etcd.HasLeader })
		s.Quorum = &quorum
	}

	i := slices.IndexFunc(answers, func(a nodeResult) bool { return len(a.members) > 0 })
	if i < 0 {
		return
	}

	problems, surplus := cluster.CompareMembers(answers[i].members, q.req.ControlPlanes)
	for _, m := range surplus {
		problems = append(problems, fmt.Sprintf("member %s is not planned", m.Label()))
	}

	for _, alarm := range answers[i].alarms {
		problems = append(problems, "alarm "+alarm)
	}

	for _, problem := range problems {
		s.Care.Add("etcd", nil, "%s", problem)
	}

	for _, m := range answers[i].members {
		member := request.Member{Name: m.Label(), Learner: m.Learner}

		if i := slices.IndexFunc(answers, func(a nodeResult) bool { return a.Name == m.Hostname }); i >= 0 {
			member.Leader, member.Healthy = answers[i].etcd.Leads, answers[i].etcd.HasLeader
		}

		s.Members = append(s.Members, member)
	}

	slices.SortFunc(s.Members, func(a, b request.Member) int { return strings.Compare(a.Name, b.Name) })
}

// checkVersions warns of running versions that are past their end of life.
func (q *statusQuery) checkVersions(s *request.ClusterStatus, answers []nodeResult) {
	var over []string

	for _, a := range answers {
		for _, end := range talos.EndsOfLife(a.Talos, a.Kubelet) {
			if !end.Reached(q.now()) || slices.Contains(over, end.Of) {
				continue
			}

			over = append(over, end.Of)
			s.Care.Add(s.Cluster, nil, "%s has had no fixes since %s: upgrade it (docs/upgrades.md)", end.Of, end.Day)
		}
	}
}

// checkBackup adds the newest snapshot of etcd in the folder and off-site, and warns of missing and old ones: in the
// folder only if there is none off-site that is new enough, because the folder may be another computer's.
func (q *statusQuery) checkBackup(s *request.ClusterStatus) {
	cfg := q.req.Backup
	if cfg == nil {
		return
	}

	warn := func(format string, values ...any) { s.Care.Add("backup", nil, format, values...) }

	limit, err := time.ParseDuration(cfg.MaxAge)
	limited := err == nil
	isRecent := func(newest *request.NewestBackup) bool {
		return newest != nil && (!limited || q.now().Sub(newest.Taken) <= limit)
	}
	judge := func(newest request.NewestBackup, where string) *request.NewestBackup {
		if newest.Future != "" {
			warn("the snapshot %s is dated later than now (%s), so that it does not count: the clock of the computer that took it was wrong, or "+
				"this one's is: correct it, and rename or remove the file", newest.Future, q.now().UTC().Format(time.RFC3339))
		}

		switch {
		case isRecent(s.OffSite):
		case newest.Snapshot == "":
			warn("there is no snapshot of etcd %s: talos-proxmox backup etcd takes one", where)
		case !isRecent(&newest):
			warn("the newest snapshot of etcd is older than %s: %s", cfg.MaxAge, newest.Snapshot)
		}

		if newest.Snapshot == "" {
			return nil
		}

		return &newest
	}

	switch elsewhere := cfg.OffSite; {
	case elsewhere == nil:
	case elsewhere.Problem != "":
		warn("%s", elsewhere.Problem)
	default:
		s.OffSite = judge(elsewhere.NewestBackup, "off-site")
	}

	found, err := backup.Folder{Path: cfg.Directory, Name: cfg.Name, ID: cfg.ID}.Newest(backup.Etcd, q.now())
	if err != nil {
		warn("%v", err)
	} else {
		newest := request.NewestBackup{Snapshot: found.Newest, Taken: found.Created, Future: found.Future}
		s.Backup = judge(newest, "in "+cfg.Directory)
	}
}
