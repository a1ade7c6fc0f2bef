package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// callTimeout bounds one call, so that a node that swallows packets does not hide what the others say.
const callTimeout = 10 * time.Second

// talosAPI asks one node's Talos API on its own address.
type talosAPI interface {
	services(ctx context.Context, address string) ([]service, error)
	members(ctx context.Context, address string) ([]member, error)
	version(ctx context.Context, address string) (string, error)
}

// kubernetesAPI asks the Kubernetes API on one control plane's own address.
type kubernetesAPI interface {
	ready(ctx context.Context, address string) error
	nodes(ctx context.Context, address string) ([]kubeNode, error)
}

// gate looks at a cluster again and again until it is healthy.
type gate struct {
	req        *request
	talos      talosAPI
	kubernetes kubernetesAPI

	mu       sync.Mutex
	progress io.Writer
	said     map[string]string
}

// finding is the result of one check. Problem has a stable wording, so that only real changes make a line; Detail may differ every time.
type finding struct {
	node, check           string
	problem, detail, note string
}

// report is one round of checks.
type report []finding

func newGate(req *request, talos talosAPI, kubernetes kubernetesAPI, progress io.Writer) *gate {
	return &gate{req: req, talos: talos, kubernetes: kubernetes, progress: progress, said: map[string]string{}}
}

// wait returns nil once everything holds in one round, and an error that names every open check at the limit or at an interrupt.
func (g *gate) wait(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, g.req.timeout)
	defer cancel()

	var last report
	for {
		current := g.round(limited)
		if len(current.open()) == 0 {
			return nil
		}
		// Calls that the limit cut off say nothing about their nodes: the round before them does.
		if limited.Err() == nil || last == nil {
			last = current
		}
		pause := time.NewTimer(g.req.interval)
		select {
		case <-pause.C:
		case <-limited.Done():
			pause.Stop()

			return g.failure(ctx, last)
		}
	}
}

func (g *gate) failure(ctx context.Context, last report) error {
	open := last.open()
	lines := make([]string, 0, len(open))
	for _, f := range open {
		lines = append(lines, "  "+f.line())
	}
	missing := fmt.Sprintf("%d of %d checks are open:\n%s", len(open), len(last), strings.Join(lines, "\n"))
	if errors.Is(ctx.Err(), context.Canceled) {
		return fmt.Errorf("interrupted before the cluster was healthy; %s\nrun the same again to go on waiting", missing)
	}

	return fmt.Errorf("the cluster is not healthy after %s; %s\nlook at a node with talosctl --nodes <address> dmesg, then run the same again",
		g.req.timeout, missing)
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
		g.say(ctx, f)
	}

	required := nodeServices
	if controlPlane {
		required = controlPlaneServices
	}
	services, err := call(ctx, func(ctx context.Context) ([]service, error) { return g.talos.services(ctx, n.Address) })
	if err != nil {
		add(finding{check: "services", problem: "Talos does not answer on " + n.Address, detail: err.Error()})
	} else {
		add(finding{check: "services", problem: judgeServices(services, required)})
	}
	reachable := err == nil
	if reachable && g.req.TalosVersion != "" {
		add(g.checkVersion(ctx, n))
	}
	if !controlPlane {
		return r
	}

	if reachable {
		add(g.checkMembers(ctx, n))
	}
	if _, err := call(ctx, func(ctx context.Context) (struct{}, error) { return struct{}{}, g.kubernetes.ready(ctx, n.Address) }); err != nil {
		add(finding{check: apiCheck, problem: "is not ready on " + n.Address, detail: err.Error()})
	} else {
		add(finding{check: apiCheck})
	}

	return r
}

// apiCheck is the name of the check that says whether a control plane can be asked for the nodes.
const apiCheck = "Kubernetes API"

func (g *gate) checkVersion(ctx context.Context, n node) finding {
	version, err := call(ctx, func(ctx context.Context) (string, error) { return g.talos.version(ctx, n.Address) })
	switch {
	case err != nil:
		return finding{check: "version", problem: "Talos does not tell its version", detail: err.Error()}
	case version != g.req.TalosVersion:
		return finding{check: "version", problem: fmt.Sprintf("runs Talos %s instead of %s", version, g.req.TalosVersion)}
	default:
		return finding{check: "version"}
	}
}

func (g *gate) checkMembers(ctx context.Context, n node) finding {
	members, err := call(ctx, func(ctx context.Context) ([]member, error) { return g.talos.members(ctx, n.Address) })
	if err != nil {
		return finding{check: "etcd", problem: "cannot list the members", detail: err.Error()}
	}

	return finding{check: "etcd", problem: judgeMembers(members, g.req.ControlPlanes)}
}

// registrations asks the first control plane whose API is ready, and then answers, for the nodes.
func (g *gate) registrations(ctx context.Context, reports []report) report {
	var (
		nodes  []kubeNode
		err    error
		answer bool
	)
	for i, n := range g.req.ControlPlanes {
		if slices.ContainsFunc(reports[i], func(f finding) bool { return f.check == apiCheck && f.problem == "" }) {
			nodes, err = call(ctx, func(ctx context.Context) ([]kubeNode, error) { return g.kubernetes.nodes(ctx, n.Address) })
			if answer = err == nil; answer {
				break
			}
		}
	}

	var r report
	for _, n := range g.req.nodes() {
		f := finding{node: n.Name, check: "node"}
		switch {
		case answer:
			f.problem, f.note = judgeNode(nodes, n.Name, g.req.KubernetesVersion)
		case err != nil:
			f.problem, f.detail = "the Kubernetes API does not list the nodes", err.Error()
		default:
			f.problem = "no Kubernetes API is ready to ask"
		}
		r = append(r, f)
		g.say(ctx, f)
	}

	return r
}

// say writes a line when a check's result is another one than before.
func (g *gate) say(ctx context.Context, f finding) {
	if ctx.Err() != nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()

	key := f.node + "\x00" + f.check
	now := f.problem + f.note
	if before, known := g.said[key]; !known || before != now {
		g.said[key] = now
		// Nobody reading the progress is no reason to stop.
		_, _ = fmt.Fprintln(g.progress, f.line())
	}
}

func (f finding) line() string {
	text := f.problem
	switch {
	case text == "" && f.note != "":
		text = f.note
	case text == "":
		text = "ok"
	case f.detail != "":
		text += ": " + f.detail
	}

	return fmt.Sprintf("%s: %s: %s", f.node, f.check, text)
}

func (r report) open() report {
	return slices.DeleteFunc(slices.Clone(r), func(f finding) bool { return f.problem == "" })
}

func call[T any](ctx context.Context, ask func(context.Context) (T, error)) (T, error) {
	bounded, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()

	return ask(bounded)
}
