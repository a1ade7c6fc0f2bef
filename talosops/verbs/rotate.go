package verbs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/talos"
	"talos-proxmox/talosops/checks"
	"talos-proxmox/talosops/kube"
	"talos-proxmox/talosops/talosapi"
	"talos-proxmox/talosops/verb"
)

const rotateHelp = `Replaces the certificate authority of a cluster's Talos API, or of its Kubernetes (kubeconfig):
docs/secrets.md#certificate-authorities says how.

It decides by the machines' configurations, so that it can be interrupted and repeated with the same authority. Without
next and key it only checks that every machine answers and has a known authority.`

const authorityCheck = "authority"

type rotateRequest struct {
	request.Rotate
	verb.Base
}

func (r *rotateRequest) Problems() problem.List {
	problems := r.OpenTalos(r.Talosconfig)

	_, err := talosapi.New(r.Next)

	if r.Kubeconfig != "" {
		problems = append(problems, r.OpenKubernetes(r.Kubeconfig)...)
		_, err = kube.ParseConfig(r.Next)
	}

	if r.Next != "" && err != nil {
		problems.Add("next", nil, "%v", err)
	}

	if (r.Next == "") != (r.Key == "") {
		problems.Add("key", nil, "the new authority's key goes with a client of it under next: send both")
	}

	return append(problems, verb.NodeProblems(r.ControlPlanes, verb.NodeGroup{Field: "workers", Nodes: r.Workers})...)
}

// authorityProbe checks which authorities a machine accepts.
type authorityProbe interface {
	// accepts returns nil if a machine accepts the probe's client, and the client trusts the machine. enforcedBy reports
	// whether the machine itself authenticates clients.
	accepts(ctx context.Context, n request.Node) error
	enforcedBy(n request.Node) bool
	Close()
}

// rotation replaces the authority of a cluster's machines.
type rotation struct {
	*checks.Watch
	talos.Rotation

	controlPlanes, workers []request.Node
	talos                  []talosapi.API // clients that machines may accept
	// newProbe has a certificate of the new authority, oldProbe of the old one; both trust both. newOnlyProbe is newProbe,
	// but trusts the new authority only.
	oldProbe, newProbe, newOnlyProbe authorityProbe
	// kubeletStarts are the start times of kubelets before they restart, by node.
	kubeletStarts map[string]string
	// resumedStep is the last step that any machine had reached when the run began. The steps before it were verified on
	// all machines.
	resumedStep int
}

func runRotate(ctx context.Context, s *verb.Session, req *rotateRequest) (any, error) {
	r, err := newRotation(s, req)
	if err != nil {
		return nil, err
	}
	defer r.Close()

	if req.Next == "" {
		err = r.run(ctx)
	} else {
		err = s.WithRunLease(ctx, "replaces the authority of "+string(r.Kind),
			func(ctx context.Context) (request.RunOutcome, error) { return "", r.run(ctx) }, r.talos...)
	}

	return request.RotateResult{Rotated: req.Next != ""}, err
}

func (r *rotation) Close() {
	for _, api := range r.talos {
		api.Close()
	}

	for _, d := range []authorityProbe{r.oldProbe, r.newProbe, r.newOnlyProbe} {
		if d != nil {
			d.Close()
		}
	}
}

func (r *rotation) nodes() []request.Node { return slices.Concat(r.controlPlanes, r.workers) }

// batches are the machines that are changed together. A change of Kubernetes restarts components, so control planes go
// one by one. In the last step workers go first: their kubelets get certificates of the new authority while all API
// servers still accept the old one.
func (r *rotation) batches(last bool) [][]request.Node {
	if r.Kind == talos.TalosAuthority {
		return [][]request.Node{r.nodes()}
	}

	batches := slices.Collect(slices.Chunk(r.controlPlanes, 1))

	switch {
	case len(r.workers) == 0:
		return batches
	case last:
		return slices.Insert(batches, 0, r.workers)
	default:
		return append(batches, r.workers)
	}
}

func (r *rotation) run(ctx context.Context) error {
	if err := r.requireReachable(ctx); err != nil || r.newProbe == nil {
		return err
	}

	for i, step := range []rotateStep{
		{"accepts the new authority", r.Add, r.accepts(r.newProbe)},
		{"issues with the new authority", r.Switch, r.accepts(r.newOnlyProbe)},
		{"no longer accepts the old authority", r.Remove, r.rejectsOld},
	} {
		for _, batch := range r.batches(i == 2) {
			changed, err := r.applyStep(ctx, batch, step)
			if err != nil {
				return err
			}

			// A machine that has done an interrupted step may depend on that step of others: API servers that have dropped the
			// old authority reject its kubelet.
			if i+1 < r.resumedStep {
				batch = changed
			}

			if err := r.verifyStep(ctx, batch, step); err != nil {
				return err
			}
		}
	}

	return nil
}

type rotateStep struct {
	effect string // of the step on a machine, for people
	change func(configuration string) ([]byte, error)
	verify func(ctx context.Context, n request.Node) error
}

// requireReachable names all machines that cannot take part, before any machine is changed.
func (r *rotation) requireReachable(ctx context.Context) error {
	nodes := r.nodes()
	done := make([]int, len(nodes))
	problems := checks.ParallelMap(nodes, func(i int, n request.Node) string {
		_, configuration, err := r.readConfiguration(ctx, n)
		if err == nil {
			done[i], err = r.CompletedSteps(configuration)
		}

		if err == nil && r.newProbe == nil {
			err = r.accepts(r.oldProbe)(ctx, n)
		}

		if err != nil {
			return fmt.Sprintf("  %s on %s: %s", n.Name, n.Address, talosapi.Cause(err))
		}

		return ""
	})

	r.resumedStep = slices.Max(done)

	problems = slices.DeleteFunc(problems, func(p string) bool { return p == "" })
	if len(problems) == 0 {
		return nil
	}

	return fmt.Errorf("no machine was changed, because these do not take part, and would be cut off:\n%s\n"+
		"start or repair them, or take those that are gone for good out of the stack file, then run the same again",
		strings.Join(problems, "\n"))
}

// readConfiguration returns a machine's configuration, and the client that the machine accepted.
func (r *rotation) readConfiguration(
	ctx context.Context, n request.Node,
) (api talosapi.API, configuration string, err error) {
	for _, api := range r.talos {
		if configuration, _, err = api.Configuration(ctx, n.Address); err == nil {
			return api, configuration, nil
		}
	}

	return nil, "", err
}

// applyStep applies a step to machines, one by one, and returns those that it changed. A failure leaves the machines
// after it unchanged.
func (r *rotation) applyStep(
	ctx context.Context, nodes []request.Node, step rotateStep,
) (changed []request.Node, err error) {
	goal := checks.Goal{
		Before: "every machine " + step.effect, Missed: "not every machine " + step.effect,
		Remedy: "start or repair what is named",
	}

	err = r.Until(ctx, goal, func(ctx context.Context) checks.Report {
		var current checks.Report

		for _, n := range nodes {
			now, err := r.applyStepTo(ctx, n, step)
			if err != nil {
				return append(current, checks.Problem(n.Name, authorityCheck, "could not be changed", talosapi.Cause(err))...)
			}

			if now {
				changed = append(changed, n)
			}

			current = append(current, checks.Finding{Node: n.Name, Check: authorityCheck})
		}

		return nil
	})

	return changed, err
}

// applyStepTo applies a step to a machine, and reports whether that changed it.
func (r *rotation) applyStepTo(ctx context.Context, n request.Node, step rotateStep) (changed bool, err error) {
	api, configuration, err := r.readConfiguration(ctx, n)
	if err != nil {
		return false, err
	}

	next, err := step.change(configuration)
	if err != nil || next == nil {
		return false, err
	}

	if r.Kind == talos.KubernetesAuthority {
		started, err := api.KubeletStart(ctx, n.Address)
		if err != nil {
			return false, err
		}

		r.kubeletStarts[n.Name] = started
	}

	if err := api.Reconfigure(ctx, n.Address, next); err != nil {
		return false, err
	}

	r.PrintNote(ctx, n.Name, authorityCheck, step.effect)

	return true, nil
}

// verifyStep waits until every machine behaves as its configuration says.
func (r *rotation) verifyStep(ctx context.Context, nodes []request.Node, step rotateStep) error {
	goal := checks.Goal{
		Before: "every machine was verified: it " + step.effect, Missed: "not every machine " + step.effect,
		Remedy: "look at talosctl dmesg of what is named",
	}

	return r.Until(ctx, goal, func(ctx context.Context) checks.Report {
		r.Close() // open connections prove nothing: they outlive the change

		return checks.Report(checks.ParallelMap(nodes, func(_ int, n request.Node) checks.Finding {
			if err := step.verify(ctx, n); err != nil {
				return checks.Problem(n.Name, authorityCheck, "is not verified yet", talosapi.Cause(err))[0]
			}

			return checks.Finding{Node: n.Name, Check: authorityCheck}
		}))
	})
}

// accepts returns a check that a machine accepts the probe's client, and that its kubelet has restarted.
func (r *rotation) accepts(d authorityProbe) func(context.Context, request.Node) error {
	return func(ctx context.Context, n request.Node) error {
		if r.Kind == talos.KubernetesAuthority {
			if err := r.kubeletRestarted(ctx, n); err != nil {
				return err
			}
		}

		return d.accepts(ctx, n)
	}
}

// rejectsOld checks that a machine rejects clients of the old authority.
func (r *rotation) rejectsOld(ctx context.Context, n request.Node) error {
	if err := r.accepts(r.newOnlyProbe)(ctx, n); err != nil {
		return err
	}

	if r.newOnlyProbe.enforcedBy(n) && r.oldProbe.accepts(ctx, n) == nil {
		return errors.New("it accepts a client of the old authority")
	}

	return ctx.Err()
}
