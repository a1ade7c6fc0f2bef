package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/checks"
	"talos-proxmox/talosops/kube"
	"talos-proxmox/talosops/talosapi"
)

// SteadyTimeout bounds how long a cluster may take to become steady, or to pass the user's health check, before a
// machine is changed.
const SteadyTimeout = 5 * time.Minute

// NodeState is the state of a node before its machine is changed, to which it must return.
type NodeState struct {
	request.Node

	Registered bool
	Ready      bool // without a CNI no node is
}

// ReadNodeState returns the current state of a node.
func (c *Cluster) ReadNodeState(ctx context.Context, n request.Node) (NodeState, error) {
	now, _, err := c.FindNode(ctx, n)

	switch {
	case err != nil:
		return NodeState{}, err
	case now == nil:
		return NodeState{}, fmt.Errorf("%s: its node is not registered in Kubernetes", n.Name)
	default:
		return NodeState{n, true, now.Ready}, nil
	}
}

// AwaitSteady waits until the cluster tolerates the loss of a machine: etcd has all its members, which are healthy,
// without alarms and learners; every control plane's API is ready; and these nodes are as they were.
func (c *Cluster) AwaitSteady(ctx context.Context, states ...NodeState) error {
	return c.AwaitSteadyWithin(ctx, c.Timeout, states...)
}

// AwaitSteadyWithin is AwaitSteady with its own limit.
func (c *Cluster) AwaitSteadyWithin(ctx context.Context, limit time.Duration, states ...NodeState) error {
	goal := checks.Goal{
		Before: "the cluster was steady", Missed: "the cluster is not steady, so no machine may be changed",
		Remedy: "repair what is named, with talosctl --nodes <address> dmesg or etcd status",
	}

	return c.Within(ctx, limit, goal, func(ctx context.Context) checks.Report { return c.CheckSteady(ctx, states...) })
}

// CheckSteady checks all control planes at once, and these nodes.
func (c *Cluster) CheckSteady(ctx context.Context, states ...NodeState) checks.Report {
	reports := checks.ParallelMap(c.ControlPlanes, func(_ int, n request.Node) checks.Report {
		return c.checkControlPlane(ctx, n)
	})

	return append(slices.Concat(reports...), c.checkNodeStates(ctx, states)...)
}

func (c *Cluster) checkControlPlane(ctx context.Context, n request.Node) checks.Report {
	services, answers := c.CheckServices(ctx, n, ControlPlaneServices)
	if !answers {
		return checks.Report{services}
	}

	return checks.Report{services, etcdFinding(n, c.etcdProblems(ctx, n)), c.CheckAPI(ctx, n)}
}

// CheckServices checks the services of a machine, and reports whether the machine answers.
func (c *Cluster) CheckServices(
	ctx context.Context, n request.Node, required []string,
) (f checks.Finding, answers bool) {
	services, err := c.Talos.Services(ctx, n.Address)
	if err != nil {
		return Unreachable(n, "services", err)[0], false
	}

	return checks.Finding{Node: n.Name, Check: "services", Problem: ServiceProblems(services, required)}, true
}

// CheckAPI checks whether the Kubernetes API of a control plane is ready.
func (c *Cluster) CheckAPI(ctx context.Context, n request.Node) checks.Finding {
	if err := c.Kubernetes.Ready(ctx, n.Address); err != nil {
		return checks.Finding{
			Node: n.Name, Check: APICheck, Problem: "is not ready on " + n.Address.String(), Detail: err.Error(),
		}
	}

	return checks.Finding{Node: n.Name, Check: APICheck}
}

func etcdFinding(n request.Node, problems []string) checks.Finding {
	slices.Sort(problems)

	return checks.Finding{Node: n.Name, Check: EtcdCheck, Problem: strings.Join(problems, ", ")}
}

// etcdProblems returns what is wrong with etcd from one control plane's point of view.
func (c *Cluster) etcdProblems(ctx context.Context, n request.Node) []string {
	problems, listed := c.memberListProblems(ctx, n)
	if !listed {
		return problems
	}

	problems = append(problems, memberProblems(ctx, c.Talos, n.Address)...)

	alarms, err := c.Talos.EtcdAlarms(ctx, n.Address)
	if err != nil {
		problems = append(problems, "cannot list the alarms: "+talosapi.Cause(err))
	}

	for _, alarm := range alarms {
		problems = append(problems, "alarm "+alarm)
	}

	return problems
}

// memberListProblems returns what is wrong with the members that one control plane lists, and whether it lists any.
// Healthy surplus members are tolerated: a later step of the run removes them.
func (c *Cluster) memberListProblems(ctx context.Context, n request.Node) (problems []string, listed bool) {
	members, err := c.Talos.Members(ctx, n.Address)
	if err != nil {
		return []string{"cannot list the members: " + talosapi.Cause(err)}, false
	}

	problems, surplus := CompareMembers(members, c.ControlPlanes)
	surplus = slices.DeleteFunc(surplus, func(m talosapi.Member) bool { return m.RunsOn(c.Excluded) })

	return append(problems, surplusProblems(ctx, c.Talos, surplus)...), true
}

// CheckMembers checks the members of etcd that a control plane lists.
func (c *Cluster) CheckMembers(ctx context.Context, n request.Node) checks.Finding {
	problems, _ := c.memberListProblems(ctx, n)

	return etcdFinding(n, problems)
}

// checkNodeStates reports nodes that are not as they were.
func (c *Cluster) checkNodeStates(ctx context.Context, states []NodeState) checks.Report {
	if len(states) == 0 {
		return nil
	}

	nodes, _, err := c.ListNodes(ctx)

	var r checks.Report

	for _, before := range states {
		f := checks.Finding{Node: before.Name, Check: NodeCheck}
		now, registered := kube.Find(nodes, before.Name)

		switch {
		case err != nil:
			f = NodesUnknown(before.Name, NodeCheck, err)[0]
		case !registered:
			f.Problem = "is not registered"
		case before.Ready && !now.Ready:
			f.Problem = "is not Ready, as it was before"
		}

		r = append(r, f)
	}

	return r
}
