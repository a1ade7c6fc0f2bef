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
	"talos-proxmox/talosops/kube"
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
		f := checks.Finding{Node: l.req.Node.Name, Check: cluster.EtcdCheck, Problem: "is still a member"}

		members, address, err := l.listMembers(ctx)
		if err == nil && !slices.ContainsFunc(members, func(m talosapi.Member) bool { return m.ID == found.member.ID }) {
			return nil
		}

		if err == nil {
			err = l.endMembership(ctx, found, address)
		}

		if err != nil {
			f.Detail = talosapi.Cause(err)
		}

		return checks.Report{f}
	})
	if err == nil {
		l.Say(ctx, checks.Finding{Node: l.req.Node.Name, Check: cluster.EtcdCheck, Note: "is no member any more"})

		return nil
	}

	return l.stays(ctx, found, err)
}

// stays has a node that could not be taken out take pods again, also after an interrupt.
func (l *leaver) stays(ctx context.Context, found leaving, err error) error {
	if found.node == nil {
		return err
	}

	lifting, cancel := context.WithTimeout(context.WithoutCancel(ctx), checks.CallTimeout)
	defer cancel()

	return errors.Join(err, l.Uncordon(lifting, l.req.Node))
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
		l.Say(
			ctx,
			checks.Finding{
				Node:  l.req.Node.Name,
				Check: cluster.EtcdCheck,
				Note:  "keeps its leadership: " + talosapi.Cause(err),
			},
		)
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
		f := checks.Finding{Node: l.req.Node.Name, Check: cluster.BootCheck, Problem: "has not shut down yet"}

		if _, err := l.bootOf(ctx); err != nil {
			silentFor++

			if silentFor >= silentRounds {
				return nil
			}

			return checks.Report{f}
		}

		silentFor = 0

		if asked {
			return checks.Report{f}
		}

		err := l.same(ctx, found)
		if err == nil {
			err = l.Talos.Reset(ctx, l.req.Node.Address)
		}

		if asked = err == nil; !asked {
			f.Problem, f.Detail = "cannot be reset", talosapi.Cause(err)
		} else {
			l.Say(ctx, checks.Finding{Node: l.req.Node.Name, Check: cluster.BootCheck, Note: "wipes itself and shuts down"})
		}

		return checks.Report{f}
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
		f := checks.Finding{Node: l.req.Node.Name, Check: "node", Problem: "is still registered"}

		nodes, address, err := l.ListNodes(ctx)

		now, registered := kube.Find(nodes, l.req.Node.Name)
		if err == nil && (!registered || now.UID != found.node.UID) {
			l.Say(ctx, checks.Finding{Node: l.req.Node.Name, Check: "node", Note: "is deleted"})

			return nil
		}

		if err == nil {
			err = l.Kubernetes.DeleteNode(ctx, address, now)
		}

		if err != nil {
			f.Detail = err.Error()
		}

		return checks.Report{f}
	})
}
