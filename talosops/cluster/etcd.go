package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/checks"
	"talos-proxmox/talosops/talosapi"
)

// HasDataNote is said of a control plane that has data of etcd.
const HasDataNote = "bootstrapped: has data of etcd"

// AnyHasEtcdData says whether one of these control planes holds data of etcd, and why those that were asked do not tell.
func (c *Cluster) AnyHasEtcdData(ctx context.Context, controlPlanes []request.Node) (holds bool, problems []error) {
	for _, n := range controlPlanes {
		holds, err := c.Talos.HoldsEtcd(ctx, n.Address)
		if holds {
			return true, nil
		}

		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %s", n.Name, talosapi.Cause(err)))
		}
	}

	return false, problems
}

// CheckEtcd says whether a control plane knows of an etcd cluster, and if not, whether it speaks against bootstrapping
// one.
func (c *Cluster) CheckEtcd(ctx context.Context, n request.Node) (f checks.Finding, there bool) {
	f, there, waits := c.CheckEtcdData(ctx, n)
	if waits {
		there = c.ListsMembers(ctx, n, &f)
	}

	return f, there
}

// CheckEtcdData says whether a control plane has data of an etcd cluster, and if not, what speaks against bootstrapping
// one, and whether its etcd has started, which waits for a cluster.
func (c *Cluster) CheckEtcdData(ctx context.Context, n request.Node) (f checks.Finding, there, waits bool) {
	f = checks.Finding{Node: n.Name, Check: EtcdCheck}

	services, err := c.Talos.Services(ctx, n.Address)
	if err != nil {
		return Unreachable(n, f.Check, err)[0], false, false
	}

	holds, err := c.Talos.HoldsEtcd(ctx, n.Address)
	if err != nil {
		f.Problem, f.Detail = "does not tell whether it has data of etcd", err.Error()

		return f, false, false
	}

	if holds {
		f.Note = HasDataNote

		return f, true, false
	}

	f.Problem, f.Note = bootstrapBlocker(services), "waits for a cluster to join"

	return f, false, f.Problem != notStarted
}

// membersTimeout bounds the question for members where there may be no etcd yet: Talos waits for it until the caller's
// limit (lab/machine/recording).
const membersTimeout = 2 * time.Second

// ListsMembers says whether a control plane without data of etcd lists members, and notes them. Without its own member,
// it asks those it discovers, which may be others than the request's.
func (c *Cluster) ListsMembers(ctx context.Context, n request.Node, f *checks.Finding) bool {
	ctx, cancel := context.WithTimeout(ctx, membersTimeout)
	defer cancel()

	members, err := c.Talos.Members(ctx, n.Address)
	if err != nil || len(members) == 0 {
		return false // the usual answer before etcd is there
	}

	f.Problem, f.Note = "", "bootstrapped: members "+MemberLabels(members)

	return true
}

// notStarted is said of a control plane that still boots.
const notStarted = "has not started"

// bootstrapBlocker returns what speaks against a control plane that has no data of etcd, or nothing. Etcd prepares while it
// waits for a cluster to join; before that, the volume of its data is not mounted, and looks empty even when it is not.
func bootstrapBlocker(services []talosapi.Service) string {
	i := slices.IndexFunc(services, func(s talosapi.Service) bool { return s.ID == "etcd" })
	switch {
	case i < 0:
		return notStarted
	case services[i].State != "Preparing":
		return "is " + strings.ToLower(services[i].State) + ", and lists no members"
	default:
		return ""
	}
}

// MemberLabels names members for people, in order.
func MemberLabels(members []talosapi.Member) string {
	labels := make([]string, 0, len(members))
	for _, m := range members {
		labels = append(labels, m.Label())
	}

	slices.Sort(labels)

	return strings.Join(labels, ", ")
}
