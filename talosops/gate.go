package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
)

// talosAPI asks one node's Talos API on its own address.
type talosAPI interface {
	services(ctx context.Context, address string) ([]service, error)
	members(ctx context.Context, address string) ([]member, error)
	etcdStatus(ctx context.Context, address string) (etcdStatus, error)
	version(ctx context.Context, address string) (string, error)
	schematic(ctx context.Context, address string) (string, error)
	gpuMachine(ctx context.Context, address string) (gpuMachine, error)
}

// kubernetesAPI asks the Kubernetes API on one control plane's own address.
type kubernetesAPI interface {
	ready(ctx context.Context, address string) error
	apiVersion(ctx context.Context, address string) (string, error)
	nodes(ctx context.Context, address string) ([]kubeNode, error)
	gpuCluster(ctx context.Context, address, node string) (gpuCluster, error)
	podNetwork(ctx context.Context, address, release string) (podNetwork, error)
}

// gate waits until a cluster is healthy.
type gate struct {
	*watch

	req        *waitRequest
	talos      talosAPI
	kubernetes kubernetesAPI
	listed     []kubeNode // of the last round
	cluster    *cluster   // for what is changed
}

func newGate(req *waitRequest, talos talosAPI, kubernetes kubernetesAPI, progress io.Writer) *gate {
	return &gate{watch: newWatch(&req.limits, progress), req: req, talos: talos, kubernetes: kubernetes}
}

// wait returns nil once everything holds in one round.
func (g *gate) wait(ctx context.Context) error {
	healthy := goal{
		before: "the cluster was healthy",
		missed: "the cluster is not healthy",
		remedy: "look at a node with talosctl --nodes <address> dmesg",
	}

	return g.until(ctx, healthy, func(ctx context.Context) (report, bool) {
		current := g.round(ctx)

		return current, len(current.open()) == 0
	})
}

// liftLeftovers makes nodes of a healthy cluster schedulable again that an interrupted run left cordoned.
func (g *gate) liftLeftovers(ctx context.Context) error {
	if !slices.ContainsFunc(g.listed, kubeNode.left) {
		return nil
	}

	return g.cluster.hold(ctx, "looks at nodes that are cordoned", func(ctx context.Context) error {
		return g.cluster.liftLeftover(ctx, node{})
	})
}

// summary says in a line what a healthy cluster has.
func (g *gate) summary() string {
	line := fmt.Sprintf("healthy: etcd members: %d; nodes: %d", len(g.req.ControlPlanes), len(g.req.nodes()))
	waiting := 0

	for _, n := range g.listed {
		if !n.Ready && g.req.unknownNode(n.Name) == "" {
			waiting++
		}
	}

	if waiting > 0 {
		line += fmt.Sprintf(", of which %d are not Ready (not waited for: nodes are Ready once a CNI runs)", waiting)
	}

	for _, e := range g.req.GPUs {
		for _, n := range g.listed {
			if n.Name == e.Node {
				line += fmt.Sprintf("; %s offers %d of %s", n.Name, n.offers(resourceOf(e)), resourceOf(e))
			}
		}
	}

	return line
}

// round asks all nodes at once.
func (g *gate) round(ctx context.Context) report {
	nodes := g.req.nodes()
	reports := make([]report, len(nodes))

	var wg sync.WaitGroup
	for i, n := range nodes {
		wg.Go(func() { reports[i] = g.lookAt(ctx, n, i < len(g.req.ControlPlanes)) })
	}

	wg.Wait()

	return append(slices.Concat(reports...), g.registrations(ctx, reports)...)
}

func (g *gate) lookAt(ctx context.Context, n node, controlPlane bool) report {
	var r report

	add := func(f finding) {
		f.node = n.Name
		r = append(r, f)
	}

	required := nodeServices
	if controlPlane {
		required = controlPlaneServices
	}

	services, err := call(ctx, func(ctx context.Context) ([]service, error) { return g.talos.services(ctx, n.Address) })
	if err != nil {
		add(silent(n, "services", err))
	} else {
		add(finding{check: "services", problem: judgeServices(services, required)})
	}

	if !controlPlane {
		return r
	}

	if err == nil {
		add(g.checkMembers(ctx, n))
	}

	if _, err := call(
		ctx, func(ctx context.Context) (struct{}, error) { return struct{}{}, g.kubernetes.ready(ctx, n.Address) },
	); err != nil {
		add(finding{check: apiCheck, problem: "is not ready on " + n.Address, detail: err.Error()})
	} else {
		add(finding{check: apiCheck})
	}

	return r
}

// apiCheck is the name of the check that says whether a control plane can be asked for the nodes.
const apiCheck = "Kubernetes API"

func (g *gate) checkMembers(ctx context.Context, n node) finding {
	members, err := call(ctx, func(ctx context.Context) ([]member, error) { return g.talos.members(ctx, n.Address) })
	if err != nil {
		return finding{check: etcdCheck, problem: "cannot list the members", detail: err.Error()}
	}

	problems, surplus := compareMembers(members, g.req.ControlPlanes)
	problems = append(problems, judgeSurplus(ctx, g.talos, surplus)...)
	slices.Sort(problems)

	return finding{check: etcdCheck, problem: strings.Join(problems, ", ")}
}

// listNodes asks the first of these control planes that answers for the nodes, and returns its address, too.
func (g *gate) listNodes(ctx context.Context, controlPlanes []node) (nodes []kubeNode, address string, err error) {
	err = errors.New("no Kubernetes API is ready to ask")
	for _, n := range controlPlanes {
		nodes, err = call(ctx, func(ctx context.Context) ([]kubeNode, error) { return g.kubernetes.nodes(ctx, n.Address) })
		if err == nil {
			return nodes, n.Address, nil
		}
	}

	return nil, "", err
}

// registrations asks a control plane whose API is ready for the nodes.
func (g *gate) registrations(ctx context.Context, reports []report) report {
	var ready []node

	for i, n := range g.req.ControlPlanes {
		if slices.ContainsFunc(reports[i], func(f finding) bool { return f.check == apiCheck && f.problem == "" }) {
			ready = append(ready, n)
		}
	}

	nodes, address, err := g.listNodes(ctx, ready)
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
		r = append(r, g.checkGPUs(ctx, nodes, address)...)
	}

	return r
}
