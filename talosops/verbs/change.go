package verbs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/checks"
	"talos-proxmox/talosops/cluster"
	"talos-proxmox/talosops/verb"
)

const changeHelp = `Coordinates the change of one machine, which the caller makes, with its running cluster:
docs/upgrades.md#one-machine-at-a-time says when it may be made.

It reads the request, waits until the cluster tolerates the loss of the machine, drains the node if the change restarts
it, prints {"ready":true}, and reads {"changed":true} or {"changed":false} once the change is over. Then it waits until
the machine is back as it was, and uncordons its node. If the input ends without an outcome, it leaves the node as it
is: the next change continues.

restart, worker, former, bootstrapped (the cluster was), off (the machine is off in Proxmox) and force (change the
machine although the cluster is not steady) can be omitted.`

// answerTimeout is how long a machine may not answer before its cluster is asked about it. nodeLostTimeout is how long
// Kubernetes may still hear from it: longer than the 50 seconds after which a dead node becomes Unknown
// (node-monitor-grace-period).
const (
	answerTimeout   = 10 * time.Second
	nodeLostTimeout = 90 * time.Second
)

// forceCommand makes a change although talosops refuses it.
const forceCommand = request.ForceVariable + "=1 pulumi up"

const changeCheck = "change"

// changeRequest names the machine that the caller changes.
type changeRequest struct {
	request.Change
	verb.Base

	unreachable bool // it does not answer
}

func (*changeRequest) Interactive() {}

func (r *changeRequest) Problems() problem.List {
	workers := verb.NodeGroup{Field: "node"}
	if r.Worker {
		workers.Nodes = []request.Node{r.Node}
	}

	problems := append(r.OpenTalos(r.Talosconfig), verb.NodeProblems(r.ControlPlanes, workers)...)
	if !r.Worker && !slices.Contains(r.ControlPlanes, r.Node) {
		problems.Add("node", r.Node.Name, "is none of controlPlanes: set worker, or use one of them")
	}

	return problems
}

// currentNode returns the node with the address that its machine has before the change.
func (r *changeRequest) currentNode() request.Node {
	n := r.Node
	if r.Former.IsValid() {
		n.Address = r.Former
	}

	return n
}

// change coordinates the change of one machine with its cluster.
type change struct {
	*verb.Session

	req *changeRequest
	// perform changes the machine. A refusal says why it could not be changed; an error ends everything, and leaves the
	// machine as it is.
	perform func(ctx context.Context) (refusal, err error)
	pending []string // parts of the configuration that take effect only after a restart by talosops
}

func runChange(ctx context.Context, s *verb.Session, req *changeRequest) (any, error) {
	c := &change{Session: s, req: req}
	c.perform = c.awaitOutcome

	return nil, c.run(ctx)
}

// run coordinates the change from the first check to the last.
func (c *change) run(ctx context.Context) error {
	reason, err := c.reasonToSkip(ctx)
	if err != nil {
		return err
	}

	if reason != "" {
		return c.changeImmediately(ctx, reason)
	}

	if err := c.connect(ctx); err != nil {
		return err
	}

	return c.changeInCluster(ctx)
}

// connect connects to Kubernetes.
func (c *change) connect(ctx context.Context) error {
	connected, err := c.Connect(ctx, c.req.ControlPlanes)
	if err == nil {
		c.Cluster = connected
	}

	return err
}

// changeInCluster changes the machine once the cluster tolerates that.
func (c *change) changeInCluster(ctx context.Context) error {
	if c.req.unreachable {
		answers, err := c.awaitNodeLost(ctx)
		if err != nil {
			return err
		}

		if answers {
			c.req.unreachable = false

			return c.run(ctx)
		}
	}

	if c.req.Force { // there may be no API to read a lease from
		return c.coordinate(ctx)
	}

	return c.WithLease(ctx, "changes "+c.req.Node.Name, c.coordinate)
}

// changeImmediately changes the machine without regard to the cluster.
func (c *change) changeImmediately(ctx context.Context, reason string) error {
	c.PrintNote(ctx, c.req.Node.Name, changeCheck, reason)

	refusal, err := c.perform(ctx)
	if err := errors.Join(refusal, err); err != nil || len(c.pending) == 0 {
		return reported(err)
	}

	return c.restart(ctx)
}

// reported returns an error that nobody else reports.
func reported(err error) error {
	if errors.Is(err, errByCaller) {
		return nil
	}

	return err
}

// reasonToSkip returns why the change needs no coordination with the cluster, or "" if it does.
func (c *change) reasonToSkip(ctx context.Context) (reason string, err error) {
	req := c.req

	n := req.currentNode()
	if _, answers := c.AwaitBootID(ctx, answerTimeout, n, changeCheck); !answers {
		return c.reasonToSkipUnreachable(ctx)
	}

	if req.Former.IsValid() && !req.Worker {
		if req.Force { // do not ask the others either: their addresses may have changed as well
			return "gets the address " + req.Node.Address.String() + " in place of " + req.Former.String(), nil
		}

		return "", fmt.Errorf("%s is not changed: it would get the address %s in place of %s, and a control plane's is in "+
			"certificates and in etcd. Set the former address again, and put new control planes beside it (docs/changing.md); to "+
			"change it anyway: "+forceCommand, n.Name, req.Node.Address, req.Former)
	}

	return c.reasonOfCluster(ctx)
}

// reasonOfCluster is reasonToSkip for a machine that answers.
func (c *change) reasonOfCluster(ctx context.Context) (reason string, err error) {
	req := c.req

	bootstrapped, err := isBootstrapped(ctx, c.Cluster)

	switch {
	case err != nil || bootstrapped:
		return "", err
	case req.Bootstrapped && req.Force:
		return "is changed although no control plane of its cluster has etcd data", nil
	case req.Bootstrapped:
		return "", fmt.Errorf("%s is not changed: %w; to change it anyway: "+forceCommand,
			req.Node.Name, dataLostError(c.ControlPlanes))
	default:
		return "belongs to a cluster that is not bootstrapped yet, so it is changed immediately", nil
	}
}

// reasonToSkipUnreachable is reasonToSkip for a machine that does not answer.
func (c *change) reasonToSkipUnreachable(ctx context.Context) (reason string, err error) {
	req := c.req
	n := req.currentNode()
	reason = "does not answer on " + n.Address.String() + ", so it is changed as it is"

	if err := ctx.Err(); err != nil || req.Off || req.Force {
		return reason, err
	}

	others := c.Without(req.Node)

	bootstrapped, err := isBootstrapped(ctx, others)
	if req.unreachable = bootstrapped; bootstrapped {
		return "", nil
	}

	if !req.Bootstrapped || ctx.Err() != nil {
		return reason, ctx.Err()
	}

	return "", errors.Join(fmt.Errorf("%s is not changed: it does not answer on %s, and no control plane of its cluster "+
		"answers that has etcd data, so nobody knows what runs. Repair the network between here and the machines "+
		"(a VPN, a firewall, port 50000), or start them (those that are off: pulumi up --refresh), then run pulumi up again; to "+
		"change it anyway: "+forceCommand, n.Name, n.Address), err)
}

// awaitNodeLost waits until Kubernetes has lost an unreachable machine as well, or until the machine answers. One that
// is booting, or that died just now, is not lost yet.
func (c *change) awaitNodeLost(ctx context.Context) (answers bool, err error) {
	n := c.req.currentNode()
	goal := checks.Goal{
		Before: "it was known whether " + n.Name + " runs",
		Missed: n.Name + " is not changed: Talos does not answer on " + n.Address.String() + ", and nothing says that it is dead",
		Remedy: "to change it anyway: " + forceCommand + "; else repair the network between here and it (a VPN, a " +
			"firewall, port 50000)",
	}

	return answers, c.Within(ctx, min(nodeLostTimeout, c.Timeout), goal, func(ctx context.Context) checks.Report {
		_, err := c.Talos.BootID(ctx, n.Address)
		if answers = err == nil; answers {
			return nil
		}

		now, _, err := c.FindNode(ctx, n)

		switch {
		case err != nil:
			return cluster.NodesUnknown(n.Name, cluster.NodeCheck, err)
		case now != nil && !now.Unreachable:
			return checks.Problem(n.Name, cluster.NodeCheck, "Kubernetes hears from its kubelet", "")
		default:
			return nil
		}
	})
}

// isBootstrapped reports whether any control plane has etcd data.
func isBootstrapped(ctx context.Context, c *cluster.Cluster) (bool, error) {
	hasData, problems := c.AnyHasEtcdData(ctx, c.ControlPlanes)
	if len(problems) > 0 && len(problems) == len(c.ControlPlanes) {
		return false, fmt.Errorf("no control plane says whether the cluster was bootstrapped:\n%w", errors.Join(problems...))
	}

	return hasData, nil
}

var (
	errNoOutcome = errors.New("the change was not finished: its caller is gone; run the same again")
	errByCaller  = errors.New("the caller reports why it could not change the machine")
)

// awaitOutcome tells the caller that the machine may be changed, and waits for the outcome.
func (c *change) awaitOutcome(ctx context.Context) (refusal, err error) {
	if err := verb.PrintResult(c.Out, request.Ready{Ready: true}); err != nil {
		return nil, err
	}

	var outcome request.Outcome

	decoded := make(chan error, 1)

	go func() { decoded <- c.In.Decode(&outcome) }()

	select {
	case err := <-decoded:
		switch {
		case err != nil:
			return nil, errNoOutcome
		case !outcome.Changed:
			return errByCaller, nil
		default:
			return nil, nil
		}
	case <-ctx.Done():
		return nil, errors.Join(errNoOutcome, context.Cause(ctx))
	}
}
