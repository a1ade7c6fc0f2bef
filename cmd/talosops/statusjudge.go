package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"talos-proxmox/internal/backup"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/talos"
)

func (q *inquiry) judgeGPUs(a *told, n kubeNode) {
	for _, e := range q.req.GPUs {
		if e.Node != a.Name {
			continue
		}

		offer := request.Offer{Resource: resourceOf(e), Offered: n.offers(resourceOf(e)), Planned: e.Count}
		a.GPUs = append(a.GPUs, offer)

		if offer.Offered < offer.Planned {
			a.worry("it offers %d of %d %s", offer.Offered, offer.Planned, offer.Resource)
		}
	}
}

// judgeCluster adds what concerns no single node.
func (q *inquiry) judgeCluster(s *request.Standing, answers []told, listErr error) {
	if listErr != nil {
		s.Care = append(s.Care, request.Concern{
			About: s.Cluster, Problem: "no Kubernetes API lists the nodes: " + listErr.Error(),
		})
	}

	i := slices.IndexFunc(answers, func(a told) bool { return len(a.members) > 0 })
	if i < 0 {
		return
	}

	problems, surplus := compareMembers(answers[i].members, q.req.ControlPlanes)
	for _, m := range surplus {
		problems = append(problems, fmt.Sprintf("member %s is not planned", m.label()))
	}

	for _, alarm := range answers[i].alarms {
		problems = append(problems, "alarm "+alarm)
	}

	for _, problem := range problems {
		s.Care = append(s.Care, request.Concern{About: "etcd", Problem: problem})
	}

	for _, m := range answers[i].members {
		leads := slices.ContainsFunc(answers, func(a told) bool { return a.Name == m.Hostname && a.etcd.Leads })
		s.Members = append(s.Members, request.Member{Name: m.label(), Leader: leads, Learner: m.Learner})
	}

	slices.SortFunc(s.Members, func(a, b request.Member) int { return strings.Compare(a.Name, b.Name) })
}

// judgeVersions looks for versions that get no fixes any more, among those that nodes run.
func (q *inquiry) judgeVersions(s *request.Standing, answers []told) {
	var over []string

	for _, a := range answers {
		for _, end := range talos.EndsOfLife(a.Talos, a.Kubelet) {
			if !end.Over(q.now()) || slices.Contains(over, end.Of) {
				continue
			}

			over = append(over, end.Of)
			s.Care = append(s.Care, request.Concern{
				About: s.Cluster, Problem: end.Of + " gets no fixes since " + end.Day + ": upgrade it (docs/upgrades.md)",
			})
		}
	}
}

// judgeBackup looks for the newest snapshot of etcd.
func (q *inquiry) judgeBackup(s *request.Standing) {
	kept := q.req.Backup
	if kept == nil {
		return
	}

	worry := func(format string, values ...any) {
		s.Care = append(s.Care, request.Concern{About: "backup", Problem: fmt.Sprintf(format, values...)})
	}

	path, taken, err := backup.Folder{Path: kept.Directory, Name: kept.Name}.Newest(backup.Etcd)

	switch {
	case err != nil:
		worry("%v", err)

		return
	case path == "":
		worry("there is no snapshot of etcd in %s: talos-proxmox backup etcd takes one", kept.Directory)

		return
	}

	s.Backup = &request.NewestBackup{Snapshot: path, Taken: taken}

	if limit, err := time.ParseDuration(kept.MaxAge); err == nil && q.now().Sub(taken) > limit {
		worry("the newest snapshot of etcd is older than %s: %s", kept.MaxAge, path)
	}
}
