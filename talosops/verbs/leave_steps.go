package verbs

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"talos-proxmox/talosops/checks"
	"talos-proxmox/talosops/cluster"
	"talos-proxmox/talosops/talosapi"
)

// prepare checks that etcd tolerates the removal of the member, and takes a snapshot.
func (l *leaver) prepare(ctx context.Context, found leavingNode) error {
	if len(found.others.ControlPlanes) == 0 {
		return fmt.Errorf(
			"%s is the only member of etcd, so it is left as it is: add control planes first", l.req.Node.Name,
		)
	}

	if err := found.others.AwaitSteady(ctx); err != nil {
		return err
	}

	snapshot, err := takeSnapshot(ctx, found.others, l.req.Backup)
	l.result.Snapshot = snapshot

	return err
}

// leaveEtcd removes a control plane's member and waits until it is gone. If it stays, the node is uncordoned.
func (l *leaver) leaveEtcd(ctx context.Context, found leavingNode) error {
	if found.member == nil {
		return nil
	}

	goal := checks.Goal{
		Before: l.req.Node.Name + " had left etcd", Missed: l.req.Node.Name + " is still a member of etcd",
		Remedy: "see talosctl --nodes " + l.req.Node.Address.String() + " service etcd",
	}

	err := l.Until(ctx, goal, func(ctx context.Context) checks.Report {
		members, address, err := l.listMembers(ctx)
		if err == nil && !slices.ContainsFunc(members, func(m talosapi.Member) bool { return m.ID == found.member.ID }) {
			return nil
		}

		if err == nil {
			err = l.removeMember(ctx, found, address)
		}

		return checks.Problem(l.req.Node.Name, cluster.EtcdCheck, "is still a member", talosapi.Cause(err))
	})
	if err == nil {
		l.PrintNote(ctx, l.req.Node.Name, cluster.EtcdCheck, "is no longer a member")

		return nil
	}

	return l.uncordonOnError(ctx, found, err)
}

// uncordonOnError uncordons a node that could not be removed.
func (l *leaver) uncordonOnError(ctx context.Context, found leavingNode, err error) error {
	if found.node == nil {
		return err
	}

	return l.UncordonOnError(ctx, l.req.Node, err)
}

func (l *leaver) removeMember(ctx context.Context, found leavingNode, through netip.Addr) error {
	if found.bootID == "" {
		err := l.Talos.RemoveMember(ctx, through, found.member.ID)
		if status.Code(err) == codes.NotFound {
			return nil
		}

		return err
	}

	if err := l.verifyBootID(ctx, found); err != nil {
		return err
	}

	// Hand over the leadership first. If that fails, etcd elects a leader afterwards.
	if err := l.Talos.ForfeitLeadership(ctx, l.req.Node.Address); err != nil {
		l.PrintNote(ctx, l.req.Node.Name, cluster.EtcdCheck, "keeps its leadership: "+talosapi.Cause(err))
	}

	return l.Talos.LeaveEtcd(ctx, l.req.Node.Address)
}

// verifyBootID returns an error if another machine answers, or the same one after a reboot.
func (l *leaver) verifyBootID(ctx context.Context, found leavingNode) error {
	boot, err := l.bootID(ctx)
	if err == nil && boot != found.bootID {
		err = errors.New("it has rebooted since, or is another machine: run the same again")
	}

	return err
}

// reset makes the machine wipe itself and shut down, and waits until it no longer answers.
func (l *leaver) reset(ctx context.Context, found leavingNode) error {
	if found.bootID == "" {
		return nil
	}

	goal := checks.Goal{
		Before: l.req.Node.Name + " had shut down", Missed: l.req.Node.Name + " has not wiped itself and shut down",
		Remedy: "look at its console, and shut its VM down",
	}
	requested, failures := false, 0

	err := l.Within(ctx, resetTimeout, goal, func(ctx context.Context) checks.Report {
		pending := checks.Problem(l.req.Node.Name, cluster.BootCheck, "has not shut down yet", "")

		if _, err := l.bootID(ctx); err != nil {
			failures++

			if failures >= downRounds {
				return nil
			}

			return pending
		}

		failures = 0

		if requested {
			return pending
		}

		err := l.verifyBootID(ctx, found)
		if err == nil {
			err = l.Talos.Reset(ctx, l.req.Node.Address)
		}

		if err != nil {
			return checks.Problem(l.req.Node.Name, cluster.BootCheck, "cannot be reset", talosapi.Cause(err))
		}

		requested = true

		l.PrintNote(ctx, l.req.Node.Name, cluster.BootCheck, "wipes itself and shuts down")

		return pending
	})
	if err == nil || requested || found.member != nil { // a control plane without its member is of no use
		return err
	}

	return l.uncordonOnError(ctx, found, err)
}

// deleteNode deletes the Node object, once no kubelet can register it again.
func (l *leaver) deleteNode(ctx context.Context, found leavingNode) error {
	if found.node == nil {
		return nil
	}

	goal := checks.Goal{
		Before: "the node " + l.req.Node.Name + " was deleted", Missed: "the node " + l.req.Node.Name + " is not deleted",
		Remedy: "kubectl delete node " + l.req.Node.Name,
	}

	return l.Until(ctx, goal, func(ctx context.Context) checks.Report {
		now, address, err := l.FindNode(ctx, l.req.Node)
		if err == nil && (now == nil || now.UID != found.node.UID) {
			l.PrintNote(ctx, l.req.Node.Name, cluster.NodeCheck, "is deleted")

			return nil
		}

		if err == nil {
			err = l.Kubernetes.DeleteNode(ctx, address, *now)
		}

		detail := ""
		if err != nil {
			detail = err.Error()
		}

		return checks.Problem(l.req.Node.Name, cluster.NodeCheck, "is still registered", detail)
	})
}
