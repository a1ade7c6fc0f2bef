package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"talos-proxmox/internal/request"
)

const changeHelp = `Accompanies the change of one machine of a running cluster, which the caller makes.

It reads the request, waits until the machine's absence will not be felt (etcd has all other members, healthy, without
alarms and learners, and the Kubernetes API is ready), drains the node where the change restarts it, prints
{"ready":true}, and reads {"changed":true} or {"changed":false} once the change is over. Then it waits until the machine
is back as it was, makes its node schedulable again, and ends. At the end of the input without an outcome it ends, and
leaves the node as it is: the next change continues.

A machine that does not answer, and one of a cluster that was not bootstrapped yet, is changed without a look. One that
gets another address is asked on its former one, and a control plane that would is not changed: its address is in
certificates and in etcd. Of a machine configuration Talos says whether it changes anything, and whether it restarts the
machine.

restart, worker, former, configuration, patches, regardless (change the machine although the cluster is not steady),
timeout (default 15m) and interval (default 2s) can be omitted.`

const changeExample = `  talosops change < pipe

  what it reads:
  {
    "timeout": "15m",
    "talosconfig": "context: prod\ncontexts: …",
    "controlPlanes": [{"name": "prod-cp-1", "address": "10.0.0.10"}],
    "node": {"name": "prod-general-1", "address": "10.0.0.30"},
    "worker": true,
    "restart": true
  }
  {"changed": true}`

// steadyTimeout is how long a cluster may take to become steady before a machine is changed, and silenceTimeout how
// long a machine may be silent until it counts as one that is off.
const (
	steadyTimeout  = 5 * time.Minute
	silenceTimeout = 10 * time.Second
)

const changeCheck = "change"

// changeRequest says which machine is to be changed.
type changeRequest struct {
	request.Change
	limits
}

func (r *changeRequest) problems() []string {
	workers := group{field: "node"}
	if r.Worker {
		workers.nodes = []node{r.Node}
	}

	problems := append(talosconfigProblems(r.Talosconfig), nodeProblems(r.ControlPlanes, workers)...)
	if !r.Worker && !slices.Contains(r.ControlPlanes, r.Node) {
		problems = append(
			problems, fmt.Sprintf("node: %q is none of controlPlanes: set worker, or use one of them", r.Node.Name),
		)
	}

	return problems
}

// before is the machine as it is reached before the change.
func (r *changeRequest) before() node {
	n := r.Node
	if r.Former != "" {
		n.Address = r.Former
	}

	return n
}

func newChange() *cobra.Command {
	return &cobra.Command{
		Use: "change", Short: "Accompany the change of a machine of a running cluster", Long: changeHelp,
		Example: changeExample, Args: cobra.NoArgs, RunE: runChange,
	}
}

func runChange(cmd *cobra.Command, _ []string) error {
	in := json.NewDecoder(cmd.InOrStdin())
	req := &changeRequest{}

	if err := awaitInput(cmd.Context(), cmd.CommandPath(), func() error {
		if err := decodeFirst(in, cmd.CommandPath(), req); err != nil {
			return err
		}

		return checkRequest(req)
	}); err != nil {
		return err
	}

	talos, err := newTalosAPI(req.Talosconfig)
	if err != nil {
		return err
	}
	defer talos.close()

	caller := caller{in: in, out: cmd.OutOrStdout()}
	w := newWatch(&req.limits, cmd.ErrOrStderr())

	return accompany(cmd.Context(), w, req, talos, caller)
}

// accompany leads a change from the first look to the last.
func accompany(ctx context.Context, w *watch, req *changeRequest, talos *talosClients, caller caller) error {
	first := &cluster{watch: w, controlPlanes: req.ControlPlanes, talos: talos}

	why, err := first.unnoticed(ctx, req)
	if err != nil {
		return err
	}

	if why != "" {
		w.say(ctx, finding{node: req.Node.Name, check: changeCheck, note: why})

		_, err := caller.change(ctx)

		return err
	}

	c, err := openCluster(ctx, w, talos, req.ControlPlanes)
	if err != nil {
		return err
	}

	change := &change{cluster: c, req: req}
	if req.Regardless { // there may be no API that a lease could be read from
		return change.run(ctx, caller)
	}

	return c.hold(ctx, "changes "+req.Node.Name, func(ctx context.Context) error { return change.run(ctx, caller) })
}

// unnoticed returns why no one notices when this machine is changed; empty = a cluster does.
func (c *cluster) unnoticed(ctx context.Context, req *changeRequest) (why string, err error) {
	n := req.before()
	if !c.answers(ctx, n) {
		return "does not answer on " + n.Address + ", so that it is changed as it is", ctx.Err()
	}

	if req.Former != "" && !req.Worker {
		if req.Regardless { // the others are not asked either, which may have other addresses as well
			return "gets the address " + req.Node.Address + " in place of " + req.Former, nil
		}

		return "", fmt.Errorf("%s is not changed: it would get the address %s in place of %s, and a control plane's is in "+
			"certificates and in etcd. Set the former address again, and put new control planes beside it (docs/changing.md); to "+
			"change it all the same: TALOS_PROXMOX_REGARDLESS=1 pulumi up", n.Name, req.Node.Address, req.Former)
	}

	if req.Configuration != "" {
		effect, err := c.effectOf(ctx, req)
		if err != nil || effect == unchanged {
			return "has this configuration already", err
		}

		req.Restart = req.Restart || effect == restarts
	}

	formed, err := c.formed(ctx)
	if err != nil || formed {
		return "", err
	}

	return "is of a cluster that was not bootstrapped yet, so that it is changed at once", nil
}

// answers says whether a machine answers, which is asked for a while.
func (c *cluster) answers(ctx context.Context, n node) bool {
	return c.within(ctx, silenceTimeout, goal{}, func(ctx context.Context) (report, bool) {
		_, err := call(ctx, func(ctx context.Context) (string, error) { return c.talos.bootID(ctx, n.Address) })
		if err == nil {
			return nil, true
		}

		return report{silent(n, changeCheck, err)}, false
	}) == nil
}

// formed says whether a control plane holds data of etcd.
func (c *cluster) formed(ctx context.Context) (bool, error) {
	var problems []error

	for _, n := range c.controlPlanes {
		holds, err := call(ctx, func(ctx context.Context) (bool, error) { return c.talos.holdsEtcd(ctx, n.Address) })
		if holds {
			return true, nil
		}

		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %s", n.Name, cause(err)))
		}
	}

	if len(problems) > 0 && len(problems) == len(c.controlPlanes) {
		return false, fmt.Errorf("no control plane says whether the cluster was bootstrapped:\n%w", errors.Join(problems...))
	}

	return false, nil
}

// caller is who changes the machine.
type caller struct {
	in  *json.Decoder
	out io.Writer
}

var errNoOutcome = errors.New("the change was not finished: its caller is gone; run the same again")

// change says that the machine may be changed, and waits until that is over.
func (c caller) change(ctx context.Context) (changed bool, err error) {
	if err := printResult(c.out, request.Ready{Ready: true}); err != nil {
		return false, err
	}

	var outcome request.Outcome

	over := make(chan error, 1)

	go func() { over <- c.in.Decode(&outcome) }()

	select {
	case err := <-over:
		if err != nil {
			return false, errNoOutcome
		}

		return outcome.Changed, nil
	case <-ctx.Done():
		return false, errors.Join(errNoOutcome, context.Cause(ctx))
	}
}
