package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// gate waits until a cluster is healthy.
type gate struct {
	*cluster

	req    *waitRequest
	listed []kubeNode // of the last round
}

// wait returns nil once everything holds in one round.
func (g *gate) wait(ctx context.Context) error {
	healthy := goal{
		before: "the cluster was healthy",
		missed: "the cluster is not healthy",
		remedy: "look at a node with talosctl --nodes <address> dmesg",
	}

	return g.until(ctx, healthy, g.round)
}

// liftLeftovers makes nodes of a healthy cluster schedulable again that an interrupted run left cordoned.
func (g *gate) liftLeftovers(ctx context.Context) error {
	if !slices.ContainsFunc(g.listed, cordonedByUs) {
		return nil
	}

	return g.hold(ctx, "looks at nodes that are cordoned", func(ctx context.Context) error {
		return g.liftLeftover(ctx, node{})
	})
}

// summary says in a line what a healthy cluster has.
func (g *gate) summary() string {
	line := fmt.Sprintf("healthy: etcd members: %d; nodes: %d", len(g.req.ControlPlanes), len(g.req.nodes()))
	waiting := 0

	for _, n := range g.listed {
		if !n.Ready && g.req.has(n.Name) {
			waiting++
		}
	}

	if waiting > 0 {
		line += fmt.Sprintf(", of which %d are not Ready (not waited for: nodes are Ready once a CNI runs)", waiting)
	}

	for _, e := range g.req.GPUs {
		if n, ok := find(g.listed, e.Node); ok {
			line += fmt.Sprintf("; %s offers %d of %s", n.Name, n.offers(resourceOf(e)), resourceOf(e))
		}
	}

	return line
}

// round asks all nodes at once.
func (g *gate) round(ctx context.Context) report {
	reports := each(g.req.nodes(), func(i int, n node) report { return g.lookAt(ctx, n, i < len(g.req.ControlPlanes)) })

	return append(slices.Concat(reports...), g.registrations(ctx, reports)...)
}

func (g *gate) lookAt(ctx context.Context, n node, controlPlane bool) report {
	if !controlPlane {
		f, _ := g.checkServices(ctx, n, nodeServices)

		return report{f}
	}

	f, answers := g.checkServices(ctx, n, controlPlaneServices)
	r := report{f}

	if answers {
		problems, _ := g.judgeMembers(ctx, n)
		r = append(r, etcdFinding(n, problems))
	}

	return append(r, g.checkAPI(ctx, n))
}

// registrations asks a control plane whose API is ready for the nodes.
func (g *gate) registrations(ctx context.Context, reports []report) report {
	var ready []node

	for i, n := range g.req.ControlPlanes {
		if slices.ContainsFunc(reports[i], func(f finding) bool { return f.check == apiCheck && f.problem == "" }) {
			ready = append(ready, n)
		}
	}

	nodes, address, err := firstOf(ready, func(address string) ([]kubeNode, error) {
		return g.kubernetes.nodes(ctx, address)
	})
	if len(ready) == 0 {
		err = errors.New("no Kubernetes API is ready to ask")
	}

	g.listed = nodes

	var r report

	for _, n := range g.req.nodes() {
		f := finding{node: n.Name, check: "node"}

		switch {
		case err == nil:
			f.problem = judgeNode(nodes, n.Name, g.req.KubernetesVersion)
			if known, _ := find(nodes, n.Name); f.problem == "" && g.req.CNI != "" && !known.Ready {
				f.problem, f.detail = "is not Ready", known.Waits
			}
		case len(ready) > 0:
			f.problem, f.detail = "the Kubernetes API does not list the nodes", err.Error()
		default:
			f.problem = err.Error()
		}

		r = append(r, f)
	}

	if err == nil {
		r = append(r, g.checkCNI(ctx, address)...)
		r = append(r, g.checkGPUs(ctx, g.req.GPUs, g.req.nodes(), nodes, address)...)
	}

	return r
}
