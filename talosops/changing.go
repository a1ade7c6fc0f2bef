package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"talos-proxmox/internal/talos"
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

	c.say(ctx, finding{node: c.req.Node.Name, check: changeCheck, note: map[bool]string{
		true: "is changed; waits until it is back", false: "could not be changed; looks whether it is well",
	}[changed]})

	if changed && len(c.req.pending) > 0 {
		if err := c.restart(ctx); err != nil {
			return err
		}
	}

	return c.finish(ctx, before, changed)
}

// prepare returns once the machine may be changed.
func (c *change) prepare(ctx context.Context) (nodeState, error) {
	n := c.req.Node

	if err := c.dropNew(ctx); err != nil {
		return nodeState{}, err
	}

	if c.req.Regardless {
		c.healthCheck = ""
	}

	others := c.without(n)
	if err := others.steadyWithin(ctx, steadyTimeout); err != nil && !c.req.Regardless {
		return nodeState{}, fmt.Errorf("%s is not changed: %w\nto change it all the same, to repair the cluster by that: "+
			allTheSame, n.Name, err)
	}

	if c.req.silent {
		c.say(ctx, finding{node: n.Name, check: changeCheck, note: "is dead: neither Talos nor its kubelet answers; it is " +
			"changed, and not waited for"})

		return nodeState{}, c.liftLeftover(ctx, n)
	}

	before, err := c.stateOf(ctx, n)
	if err != nil { // it cannot be drained; that it was no node yet is no reason not to change it
		c.say(ctx, finding{node: n.Name, check: changeCheck, note: "is changed without being drained: " + err.Error()})

		return nodeState{node: n}, nil
	}

	if err := c.liftLeftover(ctx, n); err != nil {
		return nodeState{}, err
	}

	if c.req.Restart {
		if err := c.vacate(ctx, n); err != nil {
			return nodeState{}, err
		}
	}

	if len(c.req.pending) == 0 {
		return before, nil
	}

	boot, err := c.talos.bootID(ctx, n.Address)
	if err != nil {
		return nodeState{}, fmt.Errorf("%s does not tell its boot: %s", n.Name, cause(err))
	}

	return before, c.noteRestart(ctx, n, boot)
}

// vacate drains a node whose pods have somewhere to go.
func (c *change) vacate(ctx context.Context, n node) error {
	nodes, _, err := c.listNodes(ctx)
	if err != nil {
		return fmt.Errorf("unable to list the nodes: %w", err)
	}

	if !slices.ContainsFunc(nodes, func(other kubeNode) bool {
		return other.Name != n.Name && other.Ready && !other.Unschedulable
	}) {
		c.say(ctx, finding{node: n.Name, check: drainCheck, note: "is skipped: no other node takes pods"})

		return nil
	}

	return c.evacuate(ctx, n)
}

// finish waits until the machine is back, and makes its node schedulable again.
func (c *change) finish(ctx context.Context, before nodeState, changed bool) error {
	n, limit := c.req.Node, c.timeout
	if !changed {
		limit = backTimeout
	}

	back := goal{
		before: n.Name + " was back", missed: n.Name + " is not back",
		remedy: "repair what is named, with talosctl --nodes " + n.Address + " dmesg; the node takes no pods until then",
	}

	err := c.within(ctx, limit, back, func(ctx context.Context) report {
		r := c.look(ctx, registered(before)...)
		if c.req.Worker { // the look at the control planes has theirs
			services, _ := c.checkServices(ctx, n, nodeServices)
			r = slices.Insert(r, 0, services)
		}

		return r
	})
	if err != nil {
		return err
	}

	c.say(ctx, finding{node: n.Name, check: changeCheck, note: "is back"})

	if !before.Registered {
		return nil
	}

	if err := c.noteRestart(ctx, n, ""); err != nil {
		return err
	}

	return c.uncordon(ctx, n)
}

func registered(s nodeState) []nodeState {
	if !s.Registered {
		return nil
	}

	return []nodeState{s}
}

// effectOf has Talos say what a machine configuration would do; the rest of its answer is secret.
func (c *change) effectOf(ctx context.Context) (rehearsal, error) {
	req := c.req

	configuration, err := talos.Patched(req.Configuration, req.Patches)
	if err != nil {
		return rehearsal{}, fmt.Errorf("unable to read the machine configuration of %s: %w", req.Node.Name, err)
	}

	return c.talos.rehearse(ctx, req.Node.Address, configuration)
}
