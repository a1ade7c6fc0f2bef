package verbs

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/checks"
	"talos-proxmox/talosops/cluster"
	"talos-proxmox/talosops/kube"
)

// gate waits until a cluster is healthy.
type gate struct {
	*cluster.Cluster

	req    *waitRequest
	listed []kube.Node // in the last round
}

// wait returns nil once all checks pass in one round.
func (g *gate) wait(ctx context.Context) error {
	healthy := checks.Goal{
		Before: "the cluster was healthy",
		Missed: "the cluster is not healthy",
		Remedy: "look at a node with talosctl --nodes <address> dmesg",
	}

	return g.Until(ctx, healthy, g.round)
}

// uncordonLeftovers uncordons nodes of a healthy cluster that an interrupted run left cordoned.
func (g *gate) uncordonLeftovers(ctx context.Context) error {
	if !slices.ContainsFunc(g.listed, cluster.CordonedByUs) {
		return nil
	}

	return g.WithLease(ctx, "looks at nodes that are cordoned", func(ctx context.Context) error {
		return g.UncordonLeftovers(ctx, request.Node{})
	})
}

// summary describes a healthy cluster in a line.
func (g *gate) summary() string {
	line := fmt.Sprintf("healthy: etcd members: %d; nodes: %d", len(g.req.ControlPlanes), len(g.req.nodes()))
	waiting := 0

	for _, n := range g.listed {
		if !n.Ready && hasNode(g.req.nodes(), n.Name) {
			waiting++
		}
	}

	if waiting > 0 {
		line += fmt.Sprintf(", of which %d are not Ready (not waited for: nodes are Ready once a CNI runs)", waiting)
	}

	for _, e := range g.req.GPUs {
		if n, ok := kube.Find(g.listed, e.Node); ok {
			line += fmt.Sprintf("; %s offers %d of %s", n.Name, n.Offers(cluster.GPUResource(e)), cluster.GPUResource(e))
		}
	}

	return line
}

// round checks all nodes at once.
func (g *gate) round(ctx context.Context) checks.Report {
	reports := checks.ParallelMap(g.req.nodes(), func(i int, n request.Node) checks.Report {
		return g.checkNode(ctx, n, i < len(g.req.ControlPlanes))
	})

	return append(slices.Concat(reports...), g.checkRegistrations(ctx, reports)...)
}

func (g *gate) checkNode(ctx context.Context, n request.Node, controlPlane bool) checks.Report {
	if !controlPlane {
		f, _ := g.CheckServices(ctx, n, cluster.NodeServices)

		return checks.Report{f}
	}

	f, answers := g.CheckServices(ctx, n, cluster.ControlPlaneServices)
	r := checks.Report{f}

	if answers {
		r = append(r, g.CheckMembers(ctx, n))
	}

	return append(r, g.CheckAPI(ctx, n))
}

// checkRegistrations checks the Node objects, the CNI and GPUs through a control plane whose API is ready.
func (g *gate) checkRegistrations(ctx context.Context, reports []checks.Report) checks.Report {
	var ready []request.Node

	for i, n := range g.req.ControlPlanes {
		if slices.ContainsFunc(reports[i], func(f checks.Finding) bool {
			return f.Check == cluster.APICheck && f.Problem == ""
		}) {
			ready = append(ready, n)
		}
	}

	nodes, address, err := cluster.FirstAnswer(ready, func(address netip.Addr) ([]kube.Node, error) {
		return g.Kubernetes.Nodes(ctx, address)
	})
	if len(ready) == 0 {
		err = errors.New("no Kubernetes API is ready to ask")
	}

	g.listed = nodes

	var r checks.Report

	for _, n := range g.req.nodes() {
		f := checks.Finding{Node: n.Name, Check: cluster.NodeCheck}

		switch {
		case err == nil:
			f.Problem = cluster.NodeProblem(nodes, n.Name, g.req.KubernetesVersion)
			if known, _ := kube.Find(nodes, n.Name); f.Problem == "" && g.req.CNI != "" && !known.Ready {
				f.Problem, f.Detail = "is not Ready", known.ReadyMessage
			}
		case len(ready) > 0:
			f.Problem, f.Detail = "the Kubernetes API does not list the nodes", err.Error()
		default:
			f.Problem = err.Error()
		}

		r = append(r, f)
	}

	if err == nil {
		r = append(r, g.checkCNI(ctx, address)...)
		r = append(r, g.CheckGPUs(ctx, g.req.GPUs, g.req.nodes(), nodes, address)...)
	}

	return r
}
