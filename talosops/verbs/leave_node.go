package verbs

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/checks"
	"talos-proxmox/talosops/cluster"
	"talos-proxmox/talosops/kube"
	"talos-proxmox/talosops/talosapi"
)

const (
	// deadTimeout is how long a machine may not answer before it is given up: its VM is deleted without a reset.
	deadTimeout = 30 * time.Second
	// downRounds is the number of rounds without an answer after which a machine that was reset counts as shut down.
	downRounds = 3
	// resetTimeout is how long a machine may take to wipe itself and shut down.
	resetTimeout = 5 * time.Minute
)

// leave takes the node out while it holds the cluster's lease.
func (l *leaver) leave(ctx context.Context) error {
	return l.WithLease(ctx, "takes "+l.req.Node.Name+" out", l.takeOut)
}

// leavingNode is what was found of the node at first. Nothing else is removed: a machine that replaces it has another
// member, another Node object and another boot id.
type leavingNode struct {
	bootID string     // empty = it does not answer
	node   *kube.Node // nil = it is not registered
	member *talosapi.Member
	others *cluster.Cluster // the remaining members
}

// isPresent reports whether the cluster or the machine knows of the node.
func (n leavingNode) isPresent() bool { return n.bootID != "" || n.node != nil || n.member != nil }

func (l *leaver) takeOut(ctx context.Context) error {
	found, err := l.find(ctx)
	if err != nil {
		return err
	}

	if found.bootID == "" && found.isPresent() {
		found.bootID = l.awaitBootID(ctx)
	}

	if err := ctx.Err(); err != nil {
		return fmt.Errorf("interrupted before %s was changed: run the same again", l.req.Node.Name)
	}

	if found.isPresent() {
		err := l.BeginMaintenance(ctx, l.req.Node.Name+" stays in its cluster", cluster.Interruption{
			Operation: request.Remove, Nodes: []string{l.req.Node.Name}, Dead: found.bootID == "",
		})
		if err != nil {
			return err
		}
	}

	if found.member != nil {
		if err := l.prepare(ctx, found); err != nil {
			return err
		}
	}

	if err := l.drain(ctx, found); err != nil {
		return err
	}

	if err := l.leaveEtcd(ctx, found); err != nil {
		return err
	}

	if err := l.reset(ctx, found); err != nil {
		return err
	}

	return l.deleteNode(ctx, found)
}

// drain drains the node even if Talos does not answer: its pods may still run.
func (l *leaver) drain(ctx context.Context, found leavingNode) error {
	if found.node == nil {
		return nil
	}

	now, _, err := l.FindNode(ctx, l.req.Node)
	if err != nil || now == nil || now.UID != found.node.UID { // another machine has replaced it
		return err
	}

	return l.Drain(ctx, l.req.Node)
}

// find asks the other control planes, and the machine itself.
func (l *leaver) find(ctx context.Context) (found leavingNode, err error) {
	goal := checks.Goal{
		Before: "it was known what remains of " + l.req.Node.Name,
		Missed: "it is not known what remains of " + l.req.Node.Name,
		Remedy: "repair the control planes that are named",
	}

	err = l.Until(ctx, goal, func(ctx context.Context) checks.Report {
		var err error

		found.node, _, err = l.FindNode(ctx, l.req.Node)

		switch {
		case err != nil:
			return cluster.NodesUnknown(l.req.Node.Name, cluster.NodeCheck, err)
		case l.req.isControlPlane():
			return l.findMember(ctx, &found)
		default:
			return nil
		}
	})
	if err != nil {
		return found, err
	}

	// A machine that refuses the cluster's client certificate does not belong to the cluster.
	if id, err := l.bootID(ctx); err == nil {
		found.bootID = id
	}

	return found, nil
}

func (l *leaver) findMember(ctx context.Context, found *leavingNode) checks.Report {
	members, _, err := l.listMembers(ctx)
	if err != nil {
		return checks.Problem(l.req.Node.Name, cluster.EtcdCheck, "no control plane lists the members", talosapi.Cause(err))
	}

	others := &cluster.Cluster{Watch: l.Watch, Talos: l.Talos, Kubernetes: l.Kubernetes, Excluded: l.req.Node}

	for _, m := range members {
		if m.RunsOn(l.req.Node) {
			found.member = &m

			continue
		}

		n := request.Node{Name: m.Hostname}
		if i := slices.IndexFunc(l.ControlPlanes, m.RunsOn); i >= 0 {
			n = l.ControlPlanes[i]
		} else if addresses := m.Addresses(); len(addresses) > 0 {
			n.Address = addresses[0]
		}

		others.ControlPlanes = append(others.ControlPlanes, n)
	}

	found.others = others

	return nil
}

// listMembers returns etcd's members, and the address of the control plane that listed them.
func (l *leaver) listMembers(ctx context.Context) (members []talosapi.Member, address netip.Addr, err error) {
	return cluster.FirstAnswer(l.ControlPlanes, func(address netip.Addr) ([]talosapi.Member, error) {
		members, err := l.Talos.Members(ctx, address)
		if err == nil && len(members) == 0 {
			err = errors.New("there are none")
		}

		return members, err
	})
}

func (l *leaver) bootID(ctx context.Context) (string, error) {
	return l.Talos.BootID(ctx, l.req.Node.Address)
}

// awaitBootID waits a while for a machine that may be booting. Empty = it is dead or unreachable.
func (l *leaver) awaitBootID(ctx context.Context) (boot string) {
	boot, answers := l.AwaitBootID(ctx, deadTimeout, l.req.Node, cluster.BootCheck)
	if !answers {
		l.PrintNote(ctx, l.req.Node.Name, cluster.BootCheck, "does not answer, so it is not reset before its VM is deleted")
	}

	return boot
}
