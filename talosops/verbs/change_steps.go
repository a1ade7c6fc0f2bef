package verbs

import (
	"context"
	"fmt"
	"slices"
	"time"

	"talos-proxmox/internal/request"
	"talos-proxmox/internal/talos"
	"talos-proxmox/talosops/checks"
	"talos-proxmox/talosops/cluster"
	"talos-proxmox/talosops/kube"
	"talos-proxmox/talosops/talosapi"
)

// backTimeout is how long a machine may take to be well where its change failed.
const backTimeout = time.Minute

// accompany leads the change of a machine whose absence its cluster would feel.
func (c *change) accompany(ctx context.Context) error {
	before, err := c.prepare(ctx)
	if err != nil {
		return err
	}

	changed, err := c.askForChange(ctx)
	if err != nil || c.req.silent {
		return err
	}

	c.Say(ctx, c.req.Node.Name, changeCheck, map[bool]string{
		true: "is changed; waits until it is back", false: "could not be changed; looks whether it is well",
	}[changed])

	if changed && len(c.req.pending) > 0 {
		if err := c.restart(ctx); err != nil {
			return err
		}
	}

	return c.finish(ctx, before, changed)
}

// prepare returns once the machine may be changed.
func (c *change) prepare(ctx context.Context) (cluster.NodeState, error) {
	n := c.req.Node

	if err := c.DropNew(ctx); err != nil {
		return cluster.NodeState{}, err
	}

	if c.req.Regardless {
		c.HealthCheck = ""
	}

	others := c.Without(n)
	if err := others.SteadyWithin(ctx, cluster.SteadyTimeout); err != nil && !c.req.Regardless {
		return cluster.NodeState{}, fmt.Errorf("%s is not changed: %w\nto change it all the same, to repair the cluster by that: "+
			allTheSame, n.Name, err)
	}

	if c.req.silent {
		c.Say(ctx, n.Name, changeCheck, "is dead: neither Talos nor its kubelet answers; it is changed, and not waited for")

		return cluster.NodeState{}, c.LiftLeftover(ctx, n)
	}

	before, err := c.StateOf(ctx, n)
	if err != nil { // it cannot be drained; that it was no node yet is no reason not to change it
		c.Say(ctx, n.Name, changeCheck, "is changed without being drained: "+err.Error())

		return cluster.NodeState{Node: n}, nil
	}

	if err := c.LiftLeftover(ctx, n); err != nil {
		return cluster.NodeState{}, err
	}

	if c.req.Restart {
		if err := c.vacate(ctx, n); err != nil {
			return cluster.NodeState{}, err
		}
	}

	if len(c.req.pending) == 0 {
		return before, nil
	}

	boot, err := c.Talos.BootID(ctx, n.Address)
	if err != nil {
		return cluster.NodeState{}, fmt.Errorf("%s does not tell its boot: %s", n.Name, talosapi.Cause(err))
	}

	return before, c.noteRestart(ctx, n, boot)
}

// vacate drains a node whose pods have somewhere to go.
func (c *change) vacate(ctx context.Context, n request.Node) error {
	nodes, _, err := c.ListNodes(ctx)
	if err != nil {
		return err
	}

	if !slices.ContainsFunc(nodes, func(other kube.Node) bool {
		return other.Name != n.Name && other.Ready && !other.Unschedulable
	}) {
		c.Say(ctx, n.Name, cluster.DrainCheck, "is skipped: no other node takes pods")

		return nil
	}

	return c.Evacuate(ctx, n)
}

// finish waits until the machine is back, and makes its node schedulable again.
func (c *change) finish(ctx context.Context, before cluster.NodeState, changed bool) error {
	n, limit := c.req.Node, c.Timeout
	if !changed {
		limit = backTimeout
	}

	back := checks.Goal{
		Before: n.Name + " was back", Missed: n.Name + " is not back",
		Remedy: "repair what is named, with talosctl --nodes " + n.Address + " dmesg; the node takes no pods until then",
	}

	err := c.Within(ctx, limit, back, func(ctx context.Context) checks.Report {
		r := c.Inspect(ctx, registered(before)...)
		if c.req.Worker { // the look at the control planes has theirs
			services, _ := c.CheckServices(ctx, n, cluster.NodeServices)
			r = slices.Insert(r, 0, services)
		}

		return r
	})
	if err != nil {
		return err
	}

	c.Say(ctx, n.Name, changeCheck, "is back")

	if !before.Registered {
		return nil
	}

	if err := c.noteRestart(ctx, n, ""); err != nil {
		return err
	}

	return c.Uncordon(ctx, n)
}

func registered(s cluster.NodeState) []cluster.NodeState {
	if !s.Registered {
		return nil
	}

	return []cluster.NodeState{s}
}

// effectOf has Talos say what a machine configuration would do; the rest of its answer is secret.
func (c *change) effectOf(ctx context.Context) (talosapi.Rehearsal, error) {
	req := c.req

	configuration, err := talos.Patched(req.Configuration, req.Patches)
	if err != nil {
		return talosapi.Rehearsal{}, fmt.Errorf("unable to read the machine configuration of %s: %w", req.Node.Name, err)
	}

	return c.Talos.Rehearse(ctx, req.Node.Address, configuration)
}
