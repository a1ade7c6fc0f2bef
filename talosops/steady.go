package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// nodeState is that of a Node before its machine is changed; it must be the same again afterwards.
type nodeState struct {
	node

	Registered bool
	Ready      bool // without a CNI no node is
}

// stateOf asks for the state of a Node.
func (c *cluster) stateOf(ctx context.Context, n node) (nodeState, error) {
	nodes, _, err := c.listNodes(ctx)
	if err != nil {
		return nodeState{}, fmt.Errorf("unable to list the nodes: %w", err)
	}

	found, ok := find(nodes, n.Name)
	if !ok {
		return nodeState{}, fmt.Errorf("%s: its node is not registered in Kubernetes", n.Name)
	}

	return nodeState{n, true, found.Ready}, nil
}

// steady waits until no machine's absence is felt: etcd has all its members, healthy, without alarms and learners, the
// API is ready on every control plane, and these nodes are as they were.
func (c *cluster) steady(ctx context.Context, touched ...nodeState) error {
	return c.steadyWithin(ctx, c.timeout, touched...)
}

// steadyWithin is steady with a limit of its own.
func (c *cluster) steadyWithin(ctx context.Context, limit time.Duration, touched ...nodeState) error {
	whole := goal{
		before: "the cluster was steady", missed: "the cluster is not steady, so that no machine may be touched",
		remedy: "repair what is named, with talosctl --nodes <address> dmesg or etcd status",
	}

	return c.within(ctx, limit, whole, func(ctx context.Context) (report, bool) {
		current := c.look(ctx, touched...)

		return current, len(current.open()) == 0
	})
}

// look asks all control planes at once.
func (c *cluster) look(ctx context.Context, touched ...nodeState) report {
	reports := each(c.controlPlanes, func(_ int, n node) report { return c.lookAt(ctx, n) })

	return append(slices.Concat(reports...), c.compare(ctx, touched)...)
}

func (c *cluster) lookAt(ctx context.Context, n node) report {
	services, err := c.talos.services(ctx, n.Address)
	if err != nil {
		return report{silent(n, "services", err)}
	}

	r := report{
		{node: n.Name, check: "services", problem: judgeServices(services, controlPlaneServices)},
		{node: n.Name, check: etcdCheck, problem: c.judgeEtcd(ctx, n)},
	}

	api := finding{node: n.Name, check: apiCheck}
	if err := c.kubernetes.ready(ctx, n.Address); err != nil {
		api.problem, api.detail = "is not ready on "+n.Address, err.Error()
	}

	return append(r, api)
}

// judgeEtcd returns what is wrong with etcd as one control plane sees it, or nothing. Further members, which a later
// step of the run takes out, are tolerated where they are healthy.
func (c *cluster) judgeEtcd(ctx context.Context, n node) string {
	members, err := c.talos.members(ctx, n.Address)
	if err != nil {
		return "cannot list the members: " + cause(err)
	}

	problems, surplus := compareMembers(members, c.controlPlanes)
	surplus = slices.DeleteFunc(surplus, func(m member) bool { return m.is(c.aside) })
	problems = append(problems, judgeSurplus(ctx, c.talos, surplus)...)
	problems = append(problems, judgeMember(ctx, c.talos, n.Address)...)

	alarms, err := c.talos.etcdAlarms(ctx, n.Address)
	if err != nil {
		problems = append(problems, "cannot list the alarms: "+cause(err))
	}

	for _, alarm := range alarms {
		problems = append(problems, "alarm "+alarm)
	}

	slices.Sort(problems)

	return strings.Join(problems, ", ")
}

// compare says what of these nodes is not as it was.
func (c *cluster) compare(ctx context.Context, touched []nodeState) report {
	if len(touched) == 0 {
		return nil
	}

	nodes, _, err := c.listNodes(ctx)

	var r report

	for _, before := range touched {
		f := finding{node: before.Name, check: "node"}
		now, registered := find(nodes, before.Name)

		switch {
		case err != nil:
			f.problem, f.detail = "no Kubernetes API lists the nodes", err.Error()
		case !registered:
			f.problem = "is not registered"
		case before.Ready && !now.Ready:
			f.problem = "is not Ready, as it was before"
		}

		r = append(r, f)
	}

	return r
}
