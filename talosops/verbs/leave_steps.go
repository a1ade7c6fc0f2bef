package verbs

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"talos-proxmox/talosops/checks"
	"talos-proxmox/talosops/cluster"
	"talos-proxmox/talosops/talosapi"
)

// prepare sees to it that etcd can do without the member.
func (l *leaver) prepare(ctx context.Context, found leaving) error {
	if len(found.rest.ControlPlanes) == 0 {
		return fmt.Errorf(
			"%s is the only member of etcd, so it is left as it is: add control planes first", l.req.Node.Name,
		)
	}

	if err := found.rest.Steady(ctx); err != nil {
		return err
	}

	snapshot, err := keepSnapshot(ctx, found.rest, l.req.Backup)
	l.left.Snapshot = snapshot

	return err
}

// leaveEtcd ends the membership of a control plane, and sees it gone. A node whose member stays takes pods again.
func (l *leaver) leaveEtcd(ctx context.Context, found leaving) error {
	if found.member == nil {
		return nil
	}

	gone := checks.Goal{
		Before: l.req.Node.Name + " had left etcd", Missed: l.req.Node.Name + " is still a member of etcd",
		Remedy: "see talosctl --nodes " + l.req.Node.Address + " service etcd",
	}

	err := l.Until(ctx, gone, func(ctx context.Context) checks.Report {
		members, address, err := l.listMembers(ctx)
		if err == nil && !slices.ContainsFunc(members, func(m talosapi.Member) bool { return m.ID == found.member.ID }) {
			return nil
		}

		if err == nil {
			err = l.endMembership(ctx, found, address)
		}

		return checks.Open(l.req.Node.Name, cluster.EtcdCheck, "is still a member", talosapi.Cause(err))
	})
	if err == nil {
		l.Say(ctx, l.req.Node.Name, cluster.EtcdCheck, "is no member any more")

		return nil
	}

	return l.stays(ctx, found, err)
}

// stays has a node that could not be taken out take pods again.
func (l *leaver) stays(ctx context.Context, found leaving, err error) error {
	if found.node == nil {
		return err
	}

	return l.UncordonAfter(ctx, l.req.Node, err)
}

func (l *leaver) endMembership(ctx context.Context, found leaving, through string) error {
	if found.boot == "" {
		err := l.Talos.RemoveMember(ctx, through, found.member.ID)
		if status.Code(err) == codes.NotFound {
			return nil
		}

		return err
	}

	if err := l.same(ctx, found); err != nil {
		return err
	}

	// Another one leads before this one goes; where that fails, etcd elects one afterwards.
	if err := l.Talos.ForfeitLeadership(ctx, l.req.Node.Address); err != nil {
		l.Say(ctx, l.req.Node.Name, cluster.EtcdCheck, "keeps its leadership: "+talosapi.Cause(err))
	}

	return l.Talos.LeaveEtcd(ctx, l.req.Node.Address)
}

// same returns an error where another machine answers, or the same one after a boot.
func (l *leaver) same(ctx context.Context, found leaving) error {
	boot, err := l.bootOf(ctx)
	if err == nil && boot != found.boot {
		err = errors.New("it has booted meanwhile, or is another machine: run the same again")
	}

	return err
}

// reset has the machine wipe itself and shut down, and waits until it is silent.
func (l *leaver) reset(ctx context.Context, found leaving) error {
	if found.boot == "" {
		return nil
	}

	down := checks.Goal{
		Before: l.req.Node.Name + " had shut down", Missed: l.req.Node.Name + " has not wiped itself and shut down",
		Remedy: "look at its console, and shut its VM down",
	}
	asked, silentFor := false, 0

	err := l.Within(ctx, resetTimeout, down, func(ctx context.Context) checks.Report {
		waits := checks.Open(l.req.Node.Name, cluster.BootCheck, "has not shut down yet", "")

		if _, err := l.bootOf(ctx); err != nil {
			silentFor++

			if silentFor >= silentRounds {
				return nil
			}

			return waits
		}

		silentFor = 0

		if asked {
			return waits
		}

		err := l.same(ctx, found)
		if err == nil {
			err = l.Talos.Reset(ctx, l.req.Node.Address)
		}

		if err != nil {
			return checks.Open(l.req.Node.Name, cluster.BootCheck, "cannot be reset", talosapi.Cause(err))
		}

		asked = true

		l.Say(ctx, l.req.Node.Name, cluster.BootCheck, "wipes itself and shuts down")

		return waits
	})
	if err == nil || asked || found.member != nil { // without its member, a control plane is of no use
		return err
	}

	return l.stays(ctx, found, err)
}

// forget deletes the Node object, once no kubelet makes it again.
func (l *leaver) forget(ctx context.Context, found leaving) error {
	if found.node == nil {
		return nil
	}

	gone := checks.Goal{
		Before: "the node " + l.req.Node.Name + " was deleted", Missed: "the node " + l.req.Node.Name + " is not deleted",
		Remedy: "kubectl delete node " + l.req.Node.Name,
	}

	return l.Until(ctx, gone, func(ctx context.Context) checks.Report {
		now, address, err := l.Node(ctx, l.req.Node)
		if err == nil && (now == nil || now.UID != found.node.UID) {
			l.Say(ctx, l.req.Node.Name, cluster.NodeCheck, "is deleted")

			return nil
		}

		if err == nil {
			err = l.Kubernetes.DeleteNode(ctx, address, *now)
		}

		detail := ""
		if err != nil {
			detail = err.Error()
		}

		return checks.Open(l.req.Node.Name, cluster.NodeCheck, "is still registered", detail)
	})
}
