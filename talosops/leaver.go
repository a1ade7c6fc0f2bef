package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
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
	return l.hold(ctx, "takes "+l.req.Node.Name+" out", l.takeOut)
}

// leaving is what was found of the node at first. Nothing else is taken out: a machine that comes in its place has
// another member, another Node object and another boot.
type leaving struct {
	boot   string    // empty = it is silent
	node   *kubeNode // nil = there is none
	member *member
	rest   *cluster // of the other members
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

	nodes, _, err := l.listNodes(ctx)
	if err != nil {
		return fmt.Errorf("unable to list the nodes: %w", err)
	}

	if now, registered := find(nodes, l.req.Node.Name); !registered || now.UID != found.node.UID {
		return nil // another one came in its place
	}

	return l.evacuate(ctx, l.req.Node)
}

// find asks the other control planes, and the machine itself.
func (l *leaver) find(ctx context.Context) (found leaving, err error) {
	known := goal{
		before: "it was known what is there of " + l.req.Node.Name,
		missed: "it is not known what is there of " + l.req.Node.Name,
		remedy: "repair the control planes that are named",
	}

	err = l.until(ctx, known, func(ctx context.Context) report {
		nodes, _, err := l.listNodes(ctx)
		if err != nil {
			f := finding{node: l.req.Node.Name, check: "node", problem: "no Kubernetes API lists the nodes"}
			f.detail = err.Error()

			return report{f}
		}

		if now, registered := find(nodes, l.req.Node.Name); registered {
			found.node = &now
		}

		if !l.req.isControlPlane() {
			return nil
		}

		return report{l.findMember(ctx, &found)}
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

func (l *leaver) findMember(ctx context.Context, found *leaving) finding {
	f := finding{node: l.req.Node.Name, check: etcdCheck}

	members, _, err := l.listMembers(ctx)
	if err != nil {
		f.problem, f.detail = "no control plane lists the members", cause(err)

		return f
	}

	rest := &cluster{watch: l.watch, talos: l.talos, kubernetes: l.kubernetes, aside: l.req.Node}

	for _, m := range members {
		if m.is(l.req.Node) {
			found.member = &m

			continue
		}

		n := node{Name: m.Hostname}
		if i := slices.IndexFunc(l.controlPlanes, m.is); i >= 0 {
			n = l.controlPlanes[i]
		} else if addresses := m.addresses(); len(addresses) > 0 {
			n.Address = addresses[0]
		}

		rest.controlPlanes = append(rest.controlPlanes, n)
	}

	found.rest = rest

	return f
}

// listMembers asks the first other control plane that answers, and returns its address, too.
func (l *leaver) listMembers(ctx context.Context) (members []member, address string, err error) {
	return firstOf(l.controlPlanes, func(address string) ([]member, error) {
		members, err := l.talos.members(ctx, address)
		if err == nil && len(members) == 0 {
			err = errors.New("there are none")
		}

		return members, err
	})
}

func (l *leaver) bootOf(ctx context.Context) (string, error) {
	return l.talos.bootID(ctx, l.req.Node.Address)
}

// awaitAnswer gives a silent machine a while: it may be booting. Nothing = it is dead, or cannot be reached.
func (l *leaver) awaitAnswer(ctx context.Context) (boot string) {
	boot, answers := l.awaitBoot(ctx, deadAfter, l.req.Node, bootCheck)
	if !answers {
		l.say(ctx, finding{
			node: l.req.Node.Name, check: bootCheck, note: "is silent, and is not reset before its VM is deleted",
		})
	}

	return boot
}
