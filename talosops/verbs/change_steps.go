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

// failedChangeTimeout is how long a machine may take to be healthy after its change failed.
const failedChangeTimeout = time.Minute

// coordinate lets the caller change a machine of a running cluster: it prepares the cluster before, and waits for the
// machine afterwards.
func (c *change) coordinate(ctx context.Context) error {
	before, err := c.prepare(ctx)
	if err != nil {
		return err
	}

	refusal, err := c.perform(ctx)
	if err != nil || c.req.unreachable {
		return errors.Join(err, reported(refusal))
	}

	changed := refusal == nil
	c.PrintNote(ctx, c.req.Node.Name, changeCheck, map[bool]string{
		true: "is changed; waiting until it is back", false: "could not be changed; checking whether it is healthy",
	}[changed])

	if changed && len(c.pending) > 0 {
		if err := c.restart(ctx); err != nil {
			return err
		}
	}

	return errors.Join(reported(refusal), c.finish(ctx, before, changed))
}

// prepare returns once the machine may be changed.
func (c *change) prepare(ctx context.Context) (cluster.NodeState, error) {
	n := c.req.Node

	if err := c.DropNewControlPlanes(ctx); err != nil {
		return cluster.NodeState{}, err
	}

	if c.req.Force {
		c.HealthCheck, c.Maintenance = "", nil
	}

	if c.req.Restart {
		if err := c.beginMaintenance(ctx); err != nil {
			return cluster.NodeState{}, err
		}
	}

	others := c.Without(n)
	if err := others.AwaitSteadyWithin(ctx, cluster.SteadyTimeout); err != nil && !c.req.Force {
		return cluster.NodeState{}, fmt.Errorf("%s is not changed: %w\nto change it anyway, in order to repair the cluster: "+
			forceCommand, n.Name, err)
	}

	if c.req.unreachable {
		c.PrintNote(ctx, n.Name, changeCheck,
			"is dead: neither Talos nor its kubelet answers; it is changed, and not waited for")

		return cluster.NodeState{}, c.UncordonLeftovers(ctx, n)
	}

	before, err := c.ReadNodeState(ctx, n)
	if err != nil { // a machine without a node cannot be drained, but may be changed
		c.PrintNote(ctx, n.Name, changeCheck, "is changed without being drained: "+err.Error())

		return cluster.NodeState{Node: n}, nil
	}

	if err := c.UncordonLeftovers(ctx, n); err != nil {
		return cluster.NodeState{}, err
	}

	if c.req.Restart {
		if err := c.drain(ctx, n); err != nil {
			return cluster.NodeState{}, err
		}
	}

	if len(c.pending) == 0 {
		return before, nil
	}

	boot, err := c.Talos.BootID(ctx, n.Address)
	if err != nil {
		return cluster.NodeState{}, fmt.Errorf("%s does not report its boot id: %s", n.Name, talosapi.Cause(err))
	}

	return before, c.annotateRestart(ctx, n, boot)
}

// beginMaintenance returns an error if the machine must not be restarted now. A dead one may be.
func (c *change) beginMaintenance(ctx context.Context) error {
	subject := c.req.Node.Name + " is not changed, because that restarts it"

	if !c.req.unreachable {
		if err := c.RequireMaintenance(subject); err != nil {
			return err
		}
	}

	return c.BeginMaintenance(ctx, subject, cluster.Interruption{
		Operation: request.Restart, Nodes: []string{c.req.Node.Name}, Dead: c.req.unreachable,
	})
}

// drain drains a node if another one can take its pods.
func (c *change) drain(ctx context.Context, n request.Node) error {
	nodes, _, err := c.ListNodes(ctx)
	if err != nil {
		return err
	}

	if !slices.ContainsFunc(nodes, func(other kube.Node) bool {
		return other.Name != n.Name && other.Ready && !other.Unschedulable
	}) {
		c.PrintNote(ctx, n.Name, cluster.DrainCheck, "is skipped: no other node takes pods")

		return nil
	}

	return c.Drain(ctx, n)
}

// finish waits until the machine is back, and uncordons its node.
func (c *change) finish(ctx context.Context, before cluster.NodeState, changed bool) error {
	n, limit := c.req.Node, c.Timeout
	if !changed {
		limit = failedChangeTimeout
	}

	goal := checks.Goal{
		Before: n.Name + " was back", Missed: n.Name + " is not back",
		Remedy: "repair what is named, with talosctl --nodes " + n.Address.String() + " dmesg; the node takes no pods until then",
	}

	var nodes []cluster.NodeState
	if before.Registered {
		nodes = append(nodes, before)
	}

	err := c.Within(ctx, limit, goal, func(ctx context.Context) checks.Report {
		r := c.CheckSteady(ctx, nodes...)
		if c.req.Worker { // CheckSteady checks the services of control planes
			services, _ := c.CheckServices(ctx, n, cluster.NodeServices)
			r = slices.Insert(r, 0, services)
		}

		return r
	})
	if err != nil {
		return err
	}

	c.PrintNote(ctx, n.Name, changeCheck, "is back")

	if !before.Registered {
		return nil
	}

	if err := c.annotateRestart(ctx, n, ""); err != nil {
		return err
	}

	return c.Uncordon(ctx, n)
}
