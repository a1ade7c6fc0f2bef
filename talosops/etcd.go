package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	etcdCheck = "etcd"
	hasData   = "bootstrapped: has data of etcd"
)

// holdsEtcd says whether one of these control planes holds data of etcd, and why those that were asked do not tell.
func (c *cluster) holdsEtcd(ctx context.Context, controlPlanes []node) (holds bool, problems []error) {
	for _, n := range controlPlanes {
		holds, err := c.talos.holdsEtcd(ctx, n.Address)
		if holds {
			return true, nil
		}

		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %s", n.Name, cause(err)))
		}
	}

	return false, problems
}

// formed says whether a control plane holds data of etcd.
func (c *cluster) formed(ctx context.Context) (bool, error) {
	holds, problems := c.holdsEtcd(ctx, c.controlPlanes)
	if len(problems) > 0 && len(problems) == len(c.controlPlanes) {
		return false, fmt.Errorf("no control plane says whether the cluster was bootstrapped:\n%w", errors.Join(problems...))
	}

	return holds, nil
}

// knowsEtcd says whether a control plane knows of an etcd cluster, and if not, whether it speaks against bootstrapping
// one.
func (c *cluster) knowsEtcd(ctx context.Context, n node) (f finding, there bool) {
	f, there, waits := c.hasData(ctx, n)
	if waits {
		there = c.lists(ctx, n, &f)
	}

	return f, there
}

// hasData says whether a control plane has data of an etcd cluster, and if not, what speaks against bootstrapping one,
// and whether its etcd has started, which waits for a cluster.
func (c *cluster) hasData(ctx context.Context, n node) (f finding, there, waits bool) {
	f = finding{node: n.Name, check: etcdCheck}

	services, err := c.talos.services(ctx, n.Address)
	if err != nil {
		return silent(n, f.check, err), false, false
	}

	holds, err := c.talos.holdsEtcd(ctx, n.Address)
	if err != nil {
		f.problem, f.detail = "does not tell whether it has data of etcd", err.Error()

		return f, false, false
	}

	if holds {
		f.note = hasData

		return f, true, false
	}

	f.problem, f.note = judgeWaiting(services), "waits for a cluster to join"

	return f, false, f.problem != notStarted
}

// membersTimeout bounds the question for members where there may be no etcd yet: Talos waits for it until the caller's
// limit (lab/machine/recording).
const membersTimeout = 2 * time.Second

// lists says whether a control plane without data of etcd lists members, and notes them. Without its own member, it
// asks those it discovers, which may be others than the request's.
func (c *cluster) lists(ctx context.Context, n node, f *finding) bool {
	ctx, cancel := context.WithTimeout(ctx, membersTimeout)
	defer cancel()

	members, err := c.talos.members(ctx, n.Address)
	if err != nil || len(members) == 0 {
		return false // the usual answer before etcd is there
	}

	f.problem, f.note = "", "bootstrapped: members "+memberLabels(members)

	return true
}

// notStarted is said of a control plane that still boots.
const notStarted = "has not started"

// judgeWaiting returns what speaks against a control plane that has no data of etcd, or nothing. Etcd prepares while it
// waits for a cluster to join; before that, the volume of its data is not mounted, and looks empty even when it is not.
func judgeWaiting(services []service) string {
	i := slices.IndexFunc(services, func(s service) bool { return s.ID == "etcd" })
	switch {
	case i < 0:
		return notStarted
	case services[i].State != "Preparing":
		return "is " + strings.ToLower(services[i].State) + ", and lists no members"
	default:
		return ""
	}
}

func memberLabels(members []member) string {
	labels := make([]string, 0, len(members))
	for _, m := range members {
		labels = append(labels, m.label())
	}

	slices.Sort(labels)

	return strings.Join(labels, ", ")
}
