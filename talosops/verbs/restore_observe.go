package verbs

import (
	"context"
	"slices"
	"strings"

	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/checks"
	"talos-proxmox/talosops/cluster"
	"talos-proxmox/talosops/talosapi"
)

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
