package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// steadyTimeout is how long a cluster may take to become steady, or to succeed in the user's health check, before a
// machine is changed.
const steadyTimeout = 5 * time.Minute

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

	return c.within(ctx, limit, whole, func(ctx context.Context) report { return c.look(ctx, touched...) })
}

// look asks all control planes at once.
func (c *cluster) look(ctx context.Context, touched ...nodeState) report {
	reports := each(c.controlPlanes, func(_ int, n node) report { return c.lookAt(ctx, n) })

	return append(slices.Concat(reports...), c.compare(ctx, touched)...)
}

func (c *cluster) lookAt(ctx context.Context, n node) report {
	services, answers := c.checkServices(ctx, n, controlPlaneServices)
	if !answers {
		return report{services}
	}

	return report{services, etcdFinding(n, c.judgeEtcd(ctx, n)), c.checkAPI(ctx, n)}
}

// checkServices looks at the services of a machine, and says whether it answers.
func (c *cluster) checkServices(ctx context.Context, n node, required []string) (f finding, answers bool) {
	services, err := c.talos.services(ctx, n.Address)
	if err != nil {
		return silent(n, "services", err), false
	}

	return finding{node: n.Name, check: "services", problem: judgeServices(services, required)}, true
}

// apiCheck is the name of the check that says whether a control plane can be asked for the nodes.
const apiCheck = "Kubernetes API"

func (c *cluster) checkAPI(ctx context.Context, n node) finding {
	if err := c.kubernetes.ready(ctx, n.Address); err != nil {
		return finding{node: n.Name, check: apiCheck, problem: "is not ready on " + n.Address, detail: err.Error()}
	}

	return finding{node: n.Name, check: apiCheck}
}

func etcdFinding(n node, problems []string) finding {
	slices.Sort(problems)

	return finding{node: n.Name, check: etcdCheck, problem: strings.Join(problems, ", ")}
}

// judgeEtcd returns what is wrong with etcd as one control plane sees it.
func (c *cluster) judgeEtcd(ctx context.Context, n node) []string {
	problems, listed := c.judgeMembers(ctx, n)
	if !listed {
		return problems
	}

	problems = append(problems, judgeMember(ctx, c.talos, n.Address)...)

	alarms, err := c.talos.etcdAlarms(ctx, n.Address)
	if err != nil {
		problems = append(problems, "cannot list the alarms: "+cause(err))
	}

	for _, alarm := range alarms {
		problems = append(problems, "alarm "+alarm)
	}

	return problems
}

// judgeMembers returns what is wrong with the members that one control plane lists, or that it lists none. Further
// members, which a later step of the run takes out, are tolerated where they are healthy.
func (c *cluster) judgeMembers(ctx context.Context, n node) (problems []string, listed bool) {
	members, err := c.talos.members(ctx, n.Address)
	if err != nil {
		return []string{"cannot list the members: " + cause(err)}, false
	}

	problems, surplus := compareMembers(members, c.controlPlanes)
	surplus = slices.DeleteFunc(surplus, func(m member) bool { return m.is(c.aside) })

	return append(problems, judgeSurplus(ctx, c.talos, surplus)...), true
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
