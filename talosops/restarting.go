package main

import (
	"cmp"
	"context"
	"strings"
)

// restart has a machine boot that got a configuration, parts of which have no effect before.
func (c *change) restart(ctx context.Context) error {
	n := c.req.Node
	asked := goal{
		before: n.Name + " had restarted", missed: n.Name + " cannot be restarted",
		remedy: "see talosctl --nodes " + n.Address + " dmesg; restart it by talosctl --nodes " + n.Address + " reboot",
	}

	var before string

	err := c.until(ctx, asked, func(ctx context.Context) report {
		boot, err := c.talos.bootID(ctx, n.Address)
		if before = cmp.Or(before, boot); err == nil && boot == before {
			err = c.talos.reboot(ctx, n.Address, true) // it may have a GPU
		}

		if err != nil {
			return report{{node: n.Name, check: bootCheck, problem: "cannot be restarted", detail: cause(err)}}
		}

		return nil
	})
	if err != nil {
		return err
	}

	c.say(ctx, finding{
		node: n.Name, check: bootCheck, note: "restarts, for what has no effect before: " + strings.Join(c.req.pending, ", "),
	})

	return c.rebooted(ctx, n, before)
}

// noteRestart notes on a node that its configuration waits for the end of a boot; empty = for nothing any more.
func (c *change) noteRestart(ctx context.Context, n node, boot string) error {
	what, value := "noted to wait for a restart", &boot
	if boot == "" {
		what, value = "not noted to wait for a restart any more", nil
	}

	return c.changeNode(ctx, n, what, func(now kubeNode) *nodePatch {
		if now.Annotations[restartAnnotation] == boot {
			return nil
		}

		patch := &nodePatch{}
		patch.Metadata.Annotations = map[string]*string{restartAnnotation: value}

		return patch
	})
}

// awaitsRestart says whether a machine has a configuration since an interrupted run that waits for its restart, which
// the change makes up for then.
func (c *change) awaitsRestart(ctx context.Context) bool {
	n := c.req.Node

	nodes, _, err := c.listNodes(ctx)
	if err != nil {
		return false
	}

	now, _ := find(nodes, n.Name)

	noted := now.Annotations[restartAnnotation]
	if noted == "" {
		return false
	}

	boot, err := c.talos.bootID(ctx, n.Address)
	if err != nil {
		return false
	}

	if noted != boot { // it has restarted since
		if err := c.noteRestart(ctx, n, ""); err != nil {
			c.say(ctx, finding{node: n.Name, check: "node", note: "stays noted to wait for a restart: " + err.Error()})
		}

		return false
	}

	c.req.Restart, c.req.pending = true, []string{"what an interrupted run has changed"}

	return true
}
