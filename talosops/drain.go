package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

// cordonAnnotation of a node says who made it unschedulable: only what this program has cordoned does it uncordon.
const cordonAnnotation = "talos-proxmox/cordoned"

// restartAnnotation of a node has the id of the boot in which its machine got a configuration, parts of which have no
// effect before the next one. An interrupted run leaves it.
const restartAnnotation = "talos-proxmox/restart"

// drainTimeout is how long pods may take to leave a node unless a request says otherwise.
const drainTimeout = 5 * time.Minute

const drainCheck = "drain"

// cordonedByUs says whether this program has cordoned a node.
func cordonedByUs(n kubeNode) bool {
	_, ours := n.Annotations[cordonAnnotation]

	return ours
}

// cordon keeps new pods away from a node. One that is cordoned already stays as it is.
func (c *cluster) cordon(ctx context.Context, n node) error {
	return c.changeNode(ctx, n, "cordoned", func(now kubeNode) *nodePatch {
		if now.Unschedulable {
			return nil
		}

		return schedulable(false)
	})
}

// uncordon lifts the cordon of this program, and no one else's.
func (c *cluster) uncordon(ctx context.Context, n node) error {
	return c.changeNode(ctx, n, "schedulable again", func(now kubeNode) *nodePatch {
		if !cordonedByUs(now) {
			return nil
		}

		return schedulable(true)
	})
}

func schedulable(is bool) *nodePatch {
	patch := &nodePatch{Spec: &specPatch{Unschedulable: new(!is)}}
	patch.Metadata.Annotations = map[string]*string{cordonAnnotation: nil}

	if !is {
		patch.Metadata.Annotations[cordonAnnotation] = new("true")
	}

	return patch
}

// changeNode changes a Node object to what a comparison with it says; nil = it is that already.
func (c *cluster) changeNode(ctx context.Context, n node, what string, compare func(kubeNode) *nodePatch) error {
	const check = "node"

	changed := goal{
		before: n.Name + " was " + what, missed: n.Name + " is not " + what, remedy: "repair the cluster's API servers",
	}

	return c.until(ctx, changed, func(ctx context.Context) report {
		nodes, address, err := c.listNodes(ctx)
		if err != nil {
			return report{{node: n.Name, check: check, problem: "no Kubernetes API lists the nodes", detail: err.Error()}}
		}

		now, registered := find(nodes, n.Name)
		if !registered {
			return report{{node: n.Name, check: check, problem: "is not registered"}}
		}

		patch := compare(now)
		if patch == nil {
			return nil
		}

		patch.Metadata.ResourceVersion = now.Version

		if err := c.kubernetes.patchNode(ctx, address, n.Name, *patch); err != nil {
			return report{{node: n.Name, check: check, problem: err.Error()}}
		}

		c.say(ctx, finding{node: n.Name, check: check, note: "is " + what})

		return nil
	})
}

// evacuate cordons a node and evicts its pods, once the user's health check succeeds. Where they may not leave in time,
// the error names them and why, and the node is schedulable again.
func (c *cluster) evacuate(ctx context.Context, n node) error {
	nodes, _, err := c.listNodes(ctx)
	if err != nil {
		return fmt.Errorf("unable to list the nodes: %w", err)
	}

	now, _ := find(nodes, n.Name)
	if now.Ready { // what its absence costs is lost already otherwise
		if err := c.healthy(ctx); err != nil {
			return err
		}
	}

	if err := c.cordon(ctx, n); err != nil {
		return err
	}

	if !now.Ready {
		c.say(ctx, finding{node: n.Name, check: drainCheck, note: "is skipped: the node is not Ready, so that no pod of it would end"})

		return nil
	}

	err = c.drain(ctx, n)
	if err == nil {
		return nil
	}
	// Also after an interrupt.
	lifting, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()

	return errors.Join(err, c.uncordon(lifting, n))
}

func (c *cluster) drain(ctx context.Context, n node) error {
	drained := goal{
		before: n.Name + " was drained", missed: n.Name + " could not be drained, and was left as it is",
		remedy: "give what a budget protects another replica on another node, or change the budget",
	}

	return c.within(ctx, cmp.Or(c.drainLimit, drainTimeout), drained, func(ctx context.Context) report {
		current := c.evictAll(ctx, n)
		if len(current) == 0 {
			return nil
		}

		nodes, _, err := c.listNodes(ctx)
		now, _ := find(nodes, n.Name)

		if err == nil && now.Lost {
			c.say(ctx, finding{node: n.Name, check: drainCheck, note: "ends: its kubelet is not heard of any more, so that no pod of it would end"})

			return nil
		}

		return current
	})
}

// evictAll evicts what is on a node, and returns what has not left it yet.
func (c *cluster) evictAll(ctx context.Context, n node) report {
	pods, address, err := c.listPods(ctx, n)
	if err != nil {
		return report{{node: n.Name, check: drainCheck, problem: "no Kubernetes API lists the pods", detail: err.Error()}}
	}

	var r report

	for _, p := range pods {
		if p.Stays {
			continue
		}

		pod := fmt.Sprintf("pod %s/%s ", p.Namespace, p.Name)
		f := finding{node: n.Name, check: drainCheck, problem: pod + "has not ended yet"}

		if !p.Leaving {
			err := c.kubernetes.evict(ctx, address, p)
			if err != nil {
				f.problem, f.detail = pod+"may not leave", err.Error()
			}
		}

		r = append(r, f)
	}

	return r
}

// listPods asks the first control plane that answers, and returns its address, too.
func (c *cluster) listPods(ctx context.Context, n node) (pods []kubePod, address string, err error) {
	return firstOf(c.controlPlanes, func(address string) ([]kubePod, error) {
		return c.kubernetes.podsOn(ctx, address, n.Name)
	})
}

// liftLeftover makes nodes schedulable again that an interrupted run left cordoned, and that are well.
func (c *cluster) liftLeftover(ctx context.Context, except node) error {
	nodes, _, err := c.listNodes(ctx)
	if err != nil {
		return fmt.Errorf("unable to list the nodes: %w", err)
	}

	for _, n := range nodes {
		if !cordonedByUs(n) || n.Name == except.Name {
			continue
		}

		left := node{Name: n.Name, Address: n.Address}

		if services, _ := c.checkServices(ctx, left, nodeServices); services.problem != "" {
			c.say(ctx, finding{node: n.Name, check: "node", note: "stays cordoned, as an interrupted run left it: it is not well"})

			continue
		}

		if err := c.uncordon(ctx, left); err != nil {
			return err
		}
	}

	return nil
}
