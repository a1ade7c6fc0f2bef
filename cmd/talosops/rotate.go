package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/spf13/cobra"

	"talos-proxmox/internal/request"
	"talos-proxmox/internal/talos"
)

const rotateHelp = `Replaces the certificate authority of a cluster's Talos API, in the order of talosctl rotate-ca:
all machines accept the new authority; all issue with it, and still accept the old one; all forget the old one. Control
planes come first, since they sign the certificates of workers. Nothing restarts.

Every machine has to answer before anything is changed. A step begins when all machines have been seen to do the one
before: they let a client of the new authority in, and then show a certificate of it. It goes by what machines have, so
that it can be interrupted and repeated with the same authority. Without next and key it only looks whether every
machine answers and has an authority that is known.

The request comes as JSON on standard input; timeout (default 15m) and interval (default 2s) can be omitted. The result
is one line of JSON on standard output.`

const rotateExample = `  talosops rotate < request.json

  request.json:
  {
    "talosconfig": "context: prod\ncontexts: …",
    "next": "context: prod\ncontexts: …",
    "key": "-----BEGIN ED25519 PRIVATE KEY-----\n…",
    "controlPlanes": [{"name": "prod-cp-1", "address": "10.0.0.10"}],
    "workers": [{"name": "prod-general-1", "address": "10.0.0.30"}]
  }`

const authorityCheck = "authority"

type rotateRequest struct {
	request.Rotate
	limits
}

func (r *rotateRequest) problems() []string {
	problems := talosconfigProblems(r.Talosconfig)
	if r.Next != "" && checkTalosconfig(r.Next) != nil {
		problems = append(problems, fmt.Sprintf("next: %v", errTalosconfig))
	}

	if (r.Next == "") != (r.Key == "") {
		problems = append(problems, "key: the new authority's key goes with a talosconfig of it under next: send both")
	}

	return append(problems, nodeProblems(r.ControlPlanes, group{"workers", r.Workers})...)
}

// rotateAPI asks one machine's Talos API on its own address.
type rotateAPI interface {
	version(ctx context.Context, address string) (string, error)
	configuration(ctx context.Context, address string) (active, persistent string, err error)
	reconfigure(ctx context.Context, address string, configuration []byte) error
	close()
}

// rotation replaces the authority of a cluster's machines.
type rotation struct {
	*watch
	talos.Rotation

	nodes []node // control planes first
	// Clients of both authorities take servers of both; strict takes those of the new one alone.
	former, next, strict rotateAPI
}

func newRotate() *cobra.Command {
	cmd := &cobra.Command{
		Use: "rotate", Short: "Replace the certificate authority of the Talos API", Long: rotateHelp,
		Example: rotateExample,
	}

	return withRequest(cmd, func() *rotateRequest { return &rotateRequest{} }, runRotate)
}

func runRotate(cmd *cobra.Command, req *rotateRequest) error {
	r, err := openRotation(req, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	defer r.close()

	work := r.run
	if req.Next != "" {
		work = func(ctx context.Context) error {
			const what = "replaces the authority of the Talos API"

			return holdRun(ctx, r.watch, req.ControlPlanes, what, r.run, r.clients()...)
		}
	}

	if err := work(cmd.Context()); err != nil {
		return err
	}

	return printResult(cmd.OutOrStdout(), request.Rotated{Rotated: req.Next != ""})
}

func openRotation(req *rotateRequest, progress io.Writer) (r *rotation, err error) {
	r = &rotation{watch: newWatch(&req.limits, progress), nodes: slices.Concat(req.ControlPlanes, req.Workers)}
	if r.Old, err = talos.Trusted(req.Talosconfig); err != nil {
		return nil, err
	}

	if req.Next == "" {
		r.former, err = trusting(req.Talosconfig, r.Old)

		return r, err
	}

	r.New.Key = []byte(req.Key)
	if r.New.Certificate, err = talos.Trusted(req.Next); err != nil {
		return nil, err
	}

	var problems [3]error

	r.former, problems[0] = trusting(req.Talosconfig, r.Old, r.New.Certificate)
	r.next, problems[1] = trusting(req.Next, r.Old, r.New.Certificate)
	r.strict, problems[2] = trusting(req.Next, r.New.Certificate)

	return r, errors.Join(problems[:]...)
}

// trusting is a client that takes servers of these authorities for the cluster's.
func trusting(talosconfig string, authorities ...[]byte) (rotateAPI, error) {
	text, err := talos.Trusting(talosconfig, authorities...)
	if err != nil {
		return nil, err
	}

	return newTalosAPI(text)
}

func (r *rotation) close() {
	for _, api := range []rotateAPI{r.former, r.next, r.strict} {
		if api != nil {
			api.close()
		}
	}
}

// clients are those that machines let in, of which some know the old authority alone, and others the new one.
func (r *rotation) clients() (list []*talosClients) {
	for _, api := range []rotateAPI{r.former, r.next} {
		if t, ok := api.(*talosClients); ok {
			list = append(list, t)
		}
	}

	return list
}

func (r *rotation) run(ctx context.Context) error {
	if err := r.answers(ctx); err != nil || r.next == nil {
		return err
	}

	for _, step := range []struct {
		what   string // that a machine does then
		change func(configuration string) ([]byte, error)
		seen   func(ctx context.Context, address string) error
	}{
		{"accepts the new authority", r.Add, r.admits(r.next)},
		{"issues with the new authority", r.Switch, r.admits(r.strict)},
		{"does not accept the old authority any more", r.Remove, r.refuses},
	} {
		if err := r.changeAll(ctx, step.what, step.change); err != nil {
			return err
		}

		if err := r.seeAll(ctx, step.what, step.seen); err != nil {
			return err
		}
	}

	return nil
}

// answers finds machines that cannot take part, all at once, before one is changed.
func (r *rotation) answers(ctx context.Context) error {
	problems := make([]string, len(r.nodes))

	r.each(func(i int, n node) {
		_, configuration, err := r.read(ctx, n)
		if err == nil {
			err = r.Known(configuration)
		}

		if err != nil {
			problems[i] = fmt.Sprintf("  %s on %s: %s", n.Name, n.Address, cause(err))
		}
	})

	problems = slices.DeleteFunc(problems, func(p string) bool { return p == "" })
	if len(problems) == 0 {
		return nil
	}

	return fmt.Errorf("no machine was changed, because these do not take part, and would be cut off:\n%s\n"+
		"start or repair them, or take those that are gone for good out of the stack file, then run the same again",
		strings.Join(problems, "\n"))
}

func (r *rotation) each(do func(i int, n node)) {
	var wg sync.WaitGroup
	for i, n := range r.nodes {
		wg.Go(func() { do(i, n) })
	}

	wg.Wait()
}

// read returns a machine's configuration, and who it lets in.
func (r *rotation) read(ctx context.Context, n node) (api rotateAPI, configuration string, err error) {
	for _, api := range []rotateAPI{r.next, r.former} {
		if api == nil {
			continue
		}

		configuration, err = call(ctx, func(ctx context.Context) (string, error) {
			active, _, err := api.configuration(ctx, n.Address)

			return active, err
		})
		if err == nil {
			return api, configuration, nil
		}
	}

	return nil, "", err
}

// changeAll changes machines that have not been, one after the other; a failure keeps the ones after it as they are.
func (r *rotation) changeAll(ctx context.Context, what string, change func(string) ([]byte, error)) error {
	g := goal{
		before: "every machine " + what, missed: "not every machine " + what, remedy: "start or repair what is named",
	}

	return r.until(ctx, g, func(ctx context.Context) (report, bool) {
		var current report

		for _, n := range r.nodes {
			f := finding{node: n.Name, check: authorityCheck}
			if err := r.change(ctx, n, what, change); err != nil {
				f.problem, f.detail = "could not be changed", cause(err)

				return append(current, f), false
			}

			current = append(current, f)
		}

		return current, true
	})
}

func (r *rotation) change(ctx context.Context, n node, what string, change func(string) ([]byte, error)) error {
	api, configuration, err := r.read(ctx, n)
	if err != nil {
		return err
	}

	next, err := change(configuration)
	if err != nil || next == nil {
		return err
	}

	if _, err := call(ctx, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, api.reconfigure(ctx, n.Address, next)
	}); err != nil {
		return err
	}

	r.say(ctx, finding{node: n.Name, check: authorityCheck, note: what})

	return nil
}

// seeAll waits until every machine is seen to do what its configuration says.
func (r *rotation) seeAll(ctx context.Context, what string, seen func(context.Context, string) error) error {
	g := goal{
		before: "every machine was seen to: it " + what, missed: "not every machine " + what,
		remedy: "look at talosctl dmesg of what is named",
	}

	return r.until(ctx, g, func(ctx context.Context) (report, bool) {
		current := make(report, len(r.nodes))

		r.close() // a connection from before says nothing: it stays open
		r.each(func(i int, n node) {
			current[i] = finding{node: n.Name, check: authorityCheck}
			if err := seen(ctx, n.Address); err != nil {
				current[i].problem, current[i].detail = "is not seen to yet", cause(err)
			}
		})

		return current, len(current.open()) == 0
	})
}

// admits looks whether a machine lets a client in that trusts it.
func (*rotation) admits(api rotateAPI) func(context.Context, string) error {
	return func(ctx context.Context, address string) error {
		_, err := call(ctx, func(ctx context.Context) (string, error) { return api.version(ctx, address) })

		return err
	}
}

// refuses looks whether a machine lets nobody of the old authority in.
func (r *rotation) refuses(ctx context.Context, address string) error {
	if err := r.admits(r.strict)(ctx, address); err != nil {
		return err
	}

	if r.admits(r.former)(ctx, address) == nil {
		return errors.New("it lets a client of the old authority in")
	}

	return ctx.Err()
}

// reconfigure has a machine take a configuration over while it runs.
func (t *talosClients) reconfigure(ctx context.Context, address string, configuration []byte) error {
	_, err := ask(ctx, t, address, func(c *client.Client) (*machineapi.ApplyConfigurationResponse, error) {
		return c.ApplyConfiguration(ctx, &machineapi.ApplyConfigurationRequest{
			Data: configuration, Mode: machineapi.ApplyConfigurationRequest_NO_REBOOT,
		})
	})

	return err
}
