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

// HasDataNote is the note about a control plane that has etcd data.
const HasDataNote = "bootstrapped: has etcd data"

// AnyHasEtcdData reports whether any of these control planes has etcd data, and why others could not tell.
func (c *Cluster) AnyHasEtcdData(ctx context.Context, controlPlanes []request.Node) (holds bool, problems []error) {
	for _, n := range controlPlanes {
		holds, err := c.Talos.HasEtcdData(ctx, n.Address)
		if holds {
			return true, nil
		}

		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %s", n.Name, talosapi.Cause(err)))
		}
	}

	return false, problems
}

// CheckEtcd reports whether a control plane knows of an etcd cluster. If not, the finding has a problem if etcd must
// not be bootstrapped.
func (c *Cluster) CheckEtcd(ctx context.Context, n request.Node) (f checks.Finding, exists bool) {
	f, exists, waits := c.CheckEtcdData(ctx, n)
	if waits {
		exists = c.ListsMembers(ctx, n, &f)
	}

	return f, exists
}

// CheckEtcdData reports whether a control plane has etcd data. If not, the finding has a problem if etcd must not be
// bootstrapped, and waits reports whether its etcd has started, and waits for a cluster.
func (c *Cluster) CheckEtcdData(ctx context.Context, n request.Node) (f checks.Finding, hasData, waits bool) {
	f = checks.Finding{Node: n.Name, Check: EtcdCheck}

	services, err := c.Talos.Services(ctx, n.Address)
	if err != nil {
		return Unreachable(n, f.Check, err)[0], false, false
	}

	holds, err := c.Talos.HasEtcdData(ctx, n.Address)
	if err != nil {
		f.Problem, f.Detail = "does not report whether it has etcd data", err.Error()

		return f, false, false
	}

	if holds {
		f.Note = HasDataNote

		return f, true, false
	}

	f.Problem, f.Note = bootstrapBlocker(services), "waits for a cluster to join"

	return f, false, f.Problem != notStarted
}

// membersTimeout bounds a request for members that may reach no etcd: Talos waits until the caller's deadline then
// (lab/machine/recording).
const membersTimeout = 2 * time.Second

// ListsMembers reports whether a control plane without etcd data lists members, and notes them in f. Without a member
// of its own, Talos asks the ones it discovers, which may be others than the request's.
func (c *Cluster) ListsMembers(ctx context.Context, n request.Node, f *checks.Finding) bool {
	ctx, cancel := context.WithTimeout(ctx, membersTimeout)
	defer cancel()

	members, err := c.Talos.Members(ctx, n.Address)
	if err != nil || len(members) == 0 {
		return false // as usual before etcd runs
	}

	f.Problem, f.Note = "", "bootstrapped: members "+MemberLabels(members)

	return true
}

// notStarted is the problem of a control plane that is still booting.
const notStarted = "has not started"

// bootstrapBlocker returns why etcd must not be bootstrapped yet on a control plane without etcd data, or "". Etcd is
// Preparing while it waits for a cluster to join. Before that, its data volume is not mounted, and looks empty even if
// it is not.
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

// MemberLabels returns the sorted names of members.
func MemberLabels(members []talosapi.Member) string {
	labels := make([]string, 0, len(members))
	for _, m := range members {
		labels = append(labels, m.Label())
	}

	slices.Sort(labels)

	return strings.Join(labels, ", ")
}
