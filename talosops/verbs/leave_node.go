package verbs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/checks"
	"talos-proxmox/talosops/cluster"
	"talos-proxmox/talosops/kube"
	"talos-proxmox/talosops/talosapi"
)

const (
	// deadAfter is how long a machine may be silent before it is done without: it is not reset, and its VM is deleted.
	deadAfter = 30 * time.Second
	// silentRounds are those without an answer until a machine that was reset is down.
	silentRounds = 3
	// resetTimeout is how long it may take to wipe itself and shut down.
	resetTimeout = 5 * time.Minute
)

// leave waits for whoever else changes the cluster.
func (l *leaver) leave(ctx context.Context) error {
	return l.Hold(ctx, "takes "+l.req.Node.Name+" out", l.takeOut)
}

// leaving is what was found of the node at first. Nothing else is taken out: a machine that comes in its place has
// another member, another Node object and another boot.
type leaving struct {
	boot   string     // empty = it is silent
	node   *kube.Node // nil = there is none
	member *talosapi.Member
	rest   *cluster.Cluster // of the other members
}

func (l *leaver) takeOut(ctx context.Context) error {
	found, err := l.find(ctx)
	if err != nil {
		return err
	}

	if found.boot == "" && (found.node != nil || found.member != nil) {
		found.boot = l.awaitAnswer(ctx)
	}

	if err := ctx.Err(); err != nil {
		return fmt.Errorf("interrupted before %s was touched: run the same again", l.req.Node.Name)
	}

	if found.member != nil {
		if err := l.prepare(ctx, found); err != nil {
			return err
		}
	}

	if err := l.vacate(ctx, found); err != nil {
		return err
	}

	if err := l.leaveEtcd(ctx, found); err != nil {
		return err
	}

	if err := l.reset(ctx, found); err != nil {
		return err
	}

	return l.forget(ctx, found)
}

// vacate drains the node, whose pods run whether or not Talos answers.
func (l *leaver) vacate(ctx context.Context, found leaving) error {
	if found.node == nil {
		return nil
	}

	now, _, err := l.Node(ctx, l.req.Node)
	if err != nil || now == nil || now.UID != found.node.UID { // another one came in its place
		return err
	}

	return l.Evacuate(ctx, l.req.Node)
}

// find asks the other control planes, and the machine itself.
func (l *leaver) find(ctx context.Context) (found leaving, err error) {
	known := checks.Goal{
		Before: "it was known what is there of " + l.req.Node.Name,
		Missed: "it is not known what is there of " + l.req.Node.Name,
		Remedy: "repair the control planes that are named",
	}

	err = l.Until(ctx, known, func(ctx context.Context) checks.Report {
		var err error

		found.node, _, err = l.Node(ctx, l.req.Node)

		switch {
		case err != nil:
			return cluster.Unlisted(l.req.Node.Name, cluster.NodeCheck, err)
		case l.req.isControlPlane():
			return l.findMember(ctx, &found)
		default:
			return nil
		}
	})
	if err != nil {
		return found, err
	}

	// A machine that does not accept the cluster's client certificate is none of the cluster.
	if id, err := l.bootOf(ctx); err == nil {
		found.boot = id
	}

	return found, nil
}

func (l *leaver) findMember(ctx context.Context, found *leaving) checks.Report {
	members, _, err := l.listMembers(ctx)
	if err != nil {
		return checks.Open(l.req.Node.Name, cluster.EtcdCheck, "no control plane lists the members", talosapi.Cause(err))
	}

	rest := &cluster.Cluster{Watch: l.Watch, Talos: l.Talos, Kubernetes: l.Kubernetes, Aside: l.req.Node}

	for _, m := range members {
		if m.Is(l.req.Node) {
			found.member = &m

			continue
		}

		n := request.Node{Name: m.Hostname}
		if i := slices.IndexFunc(l.ControlPlanes, m.Is); i >= 0 {
			n = l.ControlPlanes[i]
		} else if addresses := m.Addresses(); len(addresses) > 0 {
			n.Address = addresses[0]
		}

		rest.ControlPlanes = append(rest.ControlPlanes, n)
	}

	found.rest = rest

	return nil
}

// listMembers asks the first other control plane that answers, and returns its address, too.
func (l *leaver) listMembers(ctx context.Context) (members []talosapi.Member, address string, err error) {
	return cluster.FirstOf(l.ControlPlanes, func(address string) ([]talosapi.Member, error) {
		members, err := l.Talos.Members(ctx, address)
		if err == nil && len(members) == 0 {
			err = errors.New("there are none")
		}

		return members, err
	})
}

func (l *leaver) bootOf(ctx context.Context) (string, error) {
	return l.Talos.BootID(ctx, l.req.Node.Address)
}

// awaitAnswer gives a silent machine a while: it may be booting. Nothing = it is dead, or cannot be reached.
func (l *leaver) awaitAnswer(ctx context.Context) (boot string) {
	boot, answers := l.AwaitBoot(ctx, deadAfter, l.req.Node, cluster.BootCheck)
	if !answers {
		l.Say(ctx, l.req.Node.Name, cluster.BootCheck, "is silent, and is not reset before its VM is deleted")
	}

	return boot
}
