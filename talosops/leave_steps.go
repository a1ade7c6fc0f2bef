package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// prepare sees to it that etcd can do without the member.
func (l *leaver) prepare(ctx context.Context, found leaving) error {
	if len(found.rest.controlPlanes) == 0 {
		return fmt.Errorf(
			"%s is the only member of etcd, so it is left as it is: add control planes first", l.req.Node.Name,
		)
	}

	if err := found.rest.steady(ctx); err != nil {
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

	gone := goal{
		before: l.req.Node.Name + " had left etcd", missed: l.req.Node.Name + " is still a member of etcd",
		remedy: "see talosctl --nodes " + l.req.Node.Address + " service etcd",
	}

	err := l.until(ctx, gone, func(ctx context.Context) report {
		f := finding{node: l.req.Node.Name, check: etcdCheck, problem: "is still a member"}

		members, address, err := l.listMembers(ctx)
		if err == nil && !slices.ContainsFunc(members, func(m member) bool { return m.ID == found.member.ID }) {
			return nil
		}

		if err == nil {
			err = l.endMembership(ctx, found, address)
		}

		if err != nil {
			f.detail = cause(err)
		}

		return report{f}
	})
	if err == nil {
		l.say(ctx, finding{node: l.req.Node.Name, check: etcdCheck, note: "is no member any more"})

		return nil
	}

	return l.stays(ctx, found, err)
}

// stays has a node that could not be taken out take pods again, also after an interrupt.
func (l *leaver) stays(ctx context.Context, found leaving, err error) error {
	if found.node == nil {
		return err
	}

	lifting, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()

	return errors.Join(err, l.uncordon(lifting, l.req.Node))
}

func (l *leaver) endMembership(ctx context.Context, found leaving, through string) error {
	if found.boot == "" {
		err := l.talos.removeMember(ctx, through, found.member.ID)
		if status.Code(err) == codes.NotFound {
			return nil
		}

		return err
	}

	if err := l.same(ctx, found); err != nil {
		return err
	}

	// Another one leads before this one goes; where that fails, etcd elects one afterwards.
	if err := l.talos.forfeitLeadership(ctx, l.req.Node.Address); err != nil {
		l.say(ctx, finding{node: l.req.Node.Name, check: etcdCheck, note: "keeps its leadership: " + cause(err)})
	}

	return l.talos.leaveEtcd(ctx, l.req.Node.Address)
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

	down := goal{
		before: l.req.Node.Name + " had shut down", missed: l.req.Node.Name + " has not wiped itself and shut down",
		remedy: "look at its console, and shut its VM down",
	}
	asked, silentFor := false, 0

	err := l.within(ctx, resetTimeout, down, func(ctx context.Context) report {
		f := finding{node: l.req.Node.Name, check: bootCheck, problem: "has not shut down yet"}

		if _, err := l.bootOf(ctx); err != nil {
			silentFor++

			if silentFor >= silentRounds {
				return nil
			}

			return report{f}
		}

		silentFor = 0

		if asked {
			return report{f}
		}

		err := l.same(ctx, found)
		if err == nil {
			err = l.talos.reset(ctx, l.req.Node.Address)
		}

		if asked = err == nil; !asked {
			f.problem, f.detail = "cannot be reset", cause(err)
		} else {
			l.say(ctx, finding{node: l.req.Node.Name, check: bootCheck, note: "wipes itself and shuts down"})
		}

		return report{f}
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

	gone := goal{
		before: "the node " + l.req.Node.Name + " was deleted", missed: "the node " + l.req.Node.Name + " is not deleted",
		remedy: "kubectl delete node " + l.req.Node.Name,
	}

	return l.until(ctx, gone, func(ctx context.Context) report {
		f := finding{node: l.req.Node.Name, check: "node", problem: "is still registered"}

		nodes, address, err := l.listNodes(ctx)

		now, registered := find(nodes, l.req.Node.Name)
		if err == nil && (!registered || now.UID != found.node.UID) {
			l.say(ctx, finding{node: l.req.Node.Name, check: "node", note: "is deleted"})

			return nil
		}

		if err == nil {
			err = l.kubernetes.deleteNode(ctx, address, now)
		}

		if err != nil {
			f.detail = err.Error()
		}

		return report{f}
	})
}
