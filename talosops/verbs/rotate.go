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

It goes by what machines have, so that it can be interrupted and repeated with the same authority. Without next and key
it only looks whether every machine answers and has an authority that is known.`

const authorityCheck = "authority"

type rotateRequest struct {
	request.Rotate
	verb.Limits
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

	return append(problems, verb.NodeProblems(r.ControlPlanes, verb.Group{Field: "workers", Nodes: r.Workers})...)
}

// door is where machines let clients of an authority in.
type door interface {
	// admits looks whether a client is let in that takes servers of some authorities; guards says that the machine itself
	// decides that.
	admits(ctx context.Context, n request.Node) error
	guards(n request.Node) bool
	Close()
}

// rotation replaces the authority of a cluster's machines.
type rotation struct {
	*checks.Watch
	talos.Rotation

	controlPlanes, workers []request.Node
	talos                  []talosapi.API // that machines may let in
	// Clients of both authorities take servers of both; strict takes those of the new one alone.
	former, next, strict door
	// kubelets are when those started that are to start again, by node.
	kubelets map[string]string
	// begun is the last step that some machine had when the run began: all had been seen to do the ones before.
	begun int
}

func runRotate(ctx context.Context, s *verb.Session, req *rotateRequest) (any, error) {
	r, err := openRotation(s, req)
	if err != nil {
		return nil, err
	}
	defer r.Close()

	if req.Next == "" {
		err = r.run(ctx)
	} else {
		err = s.HoldRun(ctx, "replaces the authority of "+string(r.Kind), r.run, r.talos...)
	}

	return request.Rotated{Rotated: req.Next != ""}, err
}

func (r *rotation) Close() {
	for _, api := range r.talos {
		api.Close()
	}

	for _, d := range []door{r.former, r.next, r.strict} {
		if d != nil {
			d.Close()
		}
	}
}

func (r *rotation) nodes() []request.Node { return slices.Concat(r.controlPlanes, r.workers) }

// turns are the machines that are changed together. Where they start something again, control planes take turns. In the
// last step workers are first then: their kubelets get certificates of the new authority while all API servers still
// take the ones before.
func (r *rotation) turns(last bool) [][]request.Node {
	if r.Kind == talos.OfTalos {
		return [][]request.Node{r.nodes()}
	}

	turns := slices.Collect(slices.Chunk(r.controlPlanes, 1))

	switch {
	case len(r.workers) == 0:
		return turns
	case last:
		return slices.Insert(turns, 0, r.workers)
	default:
		return append(turns, r.workers)
	}
}

func (r *rotation) run(ctx context.Context) error {
	if err := r.requireReachable(ctx); err != nil || r.next == nil {
		return err
	}

	for i, step := range []rotateStep{
		{"accepts the new authority", r.Add, r.admitted(r.next)},
		{"issues with the new authority", r.Switch, r.admitted(r.strict)},
		{"does not accept the old authority any more", r.Remove, r.refuses},
	} {
		for _, turn := range r.turns(i == 2) {
			changed, err := r.changeAll(ctx, turn, step)
			if err != nil {
				return err
			}

			// A step that was interrupted may be what a machine waits for that has done the ones before: API servers that have
			// forgotten the old authority refuse its kubelet.
			if i+1 < r.begun {
				turn = changed
			}

			if err := r.seeAll(ctx, turn, step); err != nil {
				return err
			}
		}
	}

	return nil
}

type rotateStep struct {
	what   string // that a machine does then
	change func(configuration string) ([]byte, error)
	seen   func(ctx context.Context, n request.Node) error
}

// requireReachable finds machines that cannot take part, all at once, before one is changed.
func (r *rotation) requireReachable(ctx context.Context) error {
	nodes := r.nodes()
	done := make([]int, len(nodes))
	problems := checks.Each(nodes, func(i int, n request.Node) string {
		_, configuration, err := r.read(ctx, n)
		if err == nil {
			done[i], err = r.Done(configuration)
		}

		if err == nil && r.next == nil {
			err = r.admitted(r.former)(ctx, n)
		}

		if err != nil {
			return fmt.Sprintf("  %s on %s: %s", n.Name, n.Address, talosapi.Cause(err))
		}

		return ""
	})

	r.begun = slices.Max(done)

	problems = slices.DeleteFunc(problems, func(p string) bool { return p == "" })
	if len(problems) == 0 {
		return nil
	}

	return fmt.Errorf("no machine was changed, because these do not take part, and would be cut off:\n%s\n"+
		"start or repair them, or take those that are gone for good out of the stack file, then run the same again",
		strings.Join(problems, "\n"))
}

// read returns a machine's configuration, and who it lets in.
func (r *rotation) read(ctx context.Context, n request.Node) (api talosapi.API, configuration string, err error) {
	for _, api := range r.talos {
		if configuration, _, err = api.Configuration(ctx, n.Address); err == nil {
			return api, configuration, nil
		}
	}

	return nil, "", err
}

// changeAll changes machines that have not been, one after the other, and returns them; a failure keeps the ones after
// it as they are.
func (r *rotation) changeAll(
	ctx context.Context, nodes []request.Node, step rotateStep,
) (changed []request.Node, err error) {
	g := checks.Goal{
		Before: "every machine " + step.what, Missed: "not every machine " + step.what,
		Remedy: "start or repair what is named",
	}

	err = r.Until(ctx, g, func(ctx context.Context) checks.Report {
		var current checks.Report

		for _, n := range nodes {
			now, err := r.change(ctx, n, step)
			if err != nil {
				return append(current, checks.Open(n.Name, authorityCheck, "could not be changed", talosapi.Cause(err))...)
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

// change does a step to a machine, and says whether it had to.
func (r *rotation) change(ctx context.Context, n request.Node, step rotateStep) (changed bool, err error) {
	api, configuration, err := r.read(ctx, n)
	if err != nil {
		return false, err
	}

	next, err := step.change(configuration)
	if err != nil || next == nil {
		return false, err
	}

	if r.Kind == talos.OfKubernetes {
		started, err := api.KubeletStart(ctx, n.Address)
		if err != nil {
			return false, err
		}

		r.kubelets[n.Name] = started
	}

	if err := api.Reconfigure(ctx, n.Address, next); err != nil {
		return false, err
	}

	r.Say(ctx, n.Name, authorityCheck, step.what)

	return true, nil
}

// seeAll waits until every machine is seen to do what its configuration says.
func (r *rotation) seeAll(ctx context.Context, nodes []request.Node, step rotateStep) error {
	g := checks.Goal{
		Before: "every machine was seen to: it " + step.what, Missed: "not every machine " + step.what,
		Remedy: "look at talosctl dmesg of what is named",
	}

	return r.Until(ctx, g, func(ctx context.Context) checks.Report {
		r.Close() // a connection from before says nothing: it stays open

		return checks.Report(checks.Each(nodes, func(_ int, n request.Node) checks.Finding {
			if err := step.seen(ctx, n); err != nil {
				return checks.Open(n.Name, authorityCheck, "is not seen to yet", talosapi.Cause(err))[0]
			}

			return checks.Finding{Node: n.Name, Check: authorityCheck}
		}))
	})
}

// admitted looks whether a machine lets a client in that trusts it, and whether its kubelet has started again.
func (r *rotation) admitted(d door) func(context.Context, request.Node) error {
	return func(ctx context.Context, n request.Node) error {
		if r.Kind == talos.OfKubernetes {
			if err := r.restarted(ctx, n); err != nil {
				return err
			}
		}

		return d.admits(ctx, n)
	}
}

// refuses looks whether a machine lets nobody of the old authority in.
func (r *rotation) refuses(ctx context.Context, n request.Node) error {
	if err := r.admitted(r.strict)(ctx, n); err != nil {
		return err
	}

	if r.strict.guards(n) && r.former.admits(ctx, n) == nil {
		return errors.New("it lets a client of the old authority in")
	}

	return ctx.Err()
}
