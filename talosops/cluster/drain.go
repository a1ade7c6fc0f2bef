package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/checks"
	"talos-proxmox/talosops/kube"
)

// CordonAnnotation marks nodes that this program cordoned. It uncordons no others.
const CordonAnnotation = "talos-proxmox/cordoned"

// RestartAnnotation of a node holds the boot id with which its machine got a configuration that takes effect only after
// a restart. It remains after an interrupted run.
const RestartAnnotation = "talos-proxmox/restart"

// drainTimeout is how long pods may take to leave a node, unless the request sets another limit.
const drainTimeout = 5 * time.Minute

// CordonedByUs reports whether this program has cordoned a node.
func CordonedByUs(n kube.Node) bool {
	_, cordoned := n.Annotations[CordonAnnotation]

	return cordoned
}

// cordon makes a node unschedulable. A node that somebody else cordoned stays theirs.
func (c *Cluster) cordon(ctx context.Context, n request.Node) error {
	return c.PatchNode(ctx, n, "cordoned", func(now kube.Node) *kube.NodePatch {
		if now.Unschedulable {
			return nil
		}

		return cordonPatch(true)
	})
}

// Uncordon removes this program's cordon; anybody else's stays.
func (c *Cluster) Uncordon(ctx context.Context, n request.Node) error {
	return c.PatchNode(ctx, n, "schedulable again", func(now kube.Node) *kube.NodePatch {
		if !CordonedByUs(now) {
			return nil
		}

		return cordonPatch(false)
	})
}

func cordonPatch(cordoned bool) *kube.NodePatch {
	patch := &kube.NodePatch{Spec: &kube.SpecPatch{Unschedulable: &cordoned}}
	patch.Metadata.Annotations = map[string]*string{CordonAnnotation: nil}

	if cordoned {
		patch.Metadata.Annotations[CordonAnnotation] = new("true")
	}

	return patch
}

// PatchNode applies the patch that diff returns for a Node object, and retries on failure; nil = there is nothing to
// change.
func (c *Cluster) PatchNode(
	ctx context.Context, n request.Node, what string, diff func(kube.Node) *kube.NodePatch,
) error {
	goal := checks.Goal{
		Before: n.Name + " was " + what, Missed: n.Name + " is not " + what, Remedy: "repair the cluster's API servers",
	}

	return c.Until(ctx, goal, func(ctx context.Context) checks.Report {
		now, address, err := c.FindNode(ctx, n)

		switch {
		case err != nil:
			return NodesUnknown(n.Name, NodeCheck, err)
		case now == nil:
			return checks.Problem(n.Name, NodeCheck, "is not registered", "")
		}

		patch := diff(*now)
		if patch == nil {
			return nil
		}

		patch.Metadata.ResourceVersion = now.Version

		if err := c.Kubernetes.PatchNode(ctx, address, n.Name, *patch); err != nil {
			return checks.Problem(n.Name, NodeCheck, err.Error(), "")
		}

		c.PrintNote(ctx, n.Name, NodeCheck, "is "+what)

		return nil
	})
}

// Drain cordons a node and evicts its pods, after the user's health check has succeeded. If pods cannot leave in time,
// the error names them and the reasons, and the node is uncordoned.
func (c *Cluster) Drain(ctx context.Context, n request.Node) error {
	now, _, err := c.FindNode(ctx, n)
	if err != nil {
		return err
	}

	ready := now != nil && now.Ready
	if ready { // a node that is not Ready is missing already
		if err := c.AwaitHealthCheck(ctx); err != nil {
			return err
		}
	}

	if err := c.cordon(ctx, n); err != nil {
		return err
	}

	if !ready {
		c.PrintNote(ctx, n.Name, DrainCheck, "is skipped: the node is not Ready, so its pods would never terminate")

		return nil
	}

	return c.UncordonOnError(ctx, n, c.evictPods(ctx, n))
}

// UncordonOnError uncordons a node if an operation on it failed, also after an interrupt.
func (c *Cluster) UncordonOnError(ctx context.Context, n request.Node, failed error) error {
	if failed == nil {
		return nil
	}

	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), checks.CallTimeout)
	defer cancel()

	return errors.Join(failed, c.Uncordon(ctx, n))
}

func (c *Cluster) evictPods(ctx context.Context, n request.Node) error {
	goal := checks.Goal{
		Before: n.Name + " was drained", Missed: n.Name + " could not be drained, and was left as it is",
		Remedy: "give what a budget protects another replica on another node, or change the budget",
	}

	return c.Within(ctx, cmp.Or(c.DrainLimit, drainTimeout), goal, func(ctx context.Context) checks.Report {
		current := c.evictOnce(ctx, n)
		if len(current) == 0 {
			return nil
		}

		if now, _, err := c.FindNode(ctx, n); err == nil && now != nil && now.Unreachable {
			c.PrintNote(ctx, n.Name, DrainCheck, "stops: its kubelet no longer reports, so its pods would never terminate")

			return nil
		}

		return current
	})
}

// evictOnce evicts the pods of a node, and reports those that are still there.
func (c *Cluster) evictOnce(ctx context.Context, n request.Node) checks.Report {
	pods, address, err := FirstAnswer(c.ControlPlanes, func(address netip.Addr) ([]kube.Pod, error) {
		return c.Kubernetes.PodsOn(ctx, address, n.Name)
	})
	if err != nil {
		return checks.Problem(n.Name, DrainCheck, "no Kubernetes API lists the pods", err.Error())
	}

	var r checks.Report

	for _, p := range pods {
		if p.IgnoredByDrain {
			continue
		}

		pod := fmt.Sprintf("pod %s/%s ", p.Namespace, p.Name)
		f := checks.Finding{Node: n.Name, Check: DrainCheck, Problem: pod + "has not terminated yet"}

		if !p.Terminating {
			err := c.Kubernetes.Evict(ctx, address, p)
			if err != nil {
				f.Problem, f.Detail = pod+"cannot be evicted", err.Error()
			}
		}

		r = append(r, f)
	}

	return r
}

// UncordonLeftovers uncordons healthy nodes that an interrupted run left cordoned.
func (c *Cluster) UncordonLeftovers(ctx context.Context, except request.Node) error {
	nodes, _, err := c.ListNodes(ctx)
	if err != nil {
		return err
	}

	for _, n := range nodes {
		if !CordonedByUs(n) || n.Name == except.Name {
			continue
		}

		left := request.Node{Name: n.Name, Address: n.Address}

		if services, _ := c.CheckServices(ctx, left, NodeServices); services.Problem != "" {
			c.PrintNote(ctx, n.Name, NodeCheck, "stays cordoned, as an interrupted run left it: it is not healthy")

			continue
		}

		if err := c.Uncordon(ctx, left); err != nil {
			return err
		}
	}

	return nil
}
