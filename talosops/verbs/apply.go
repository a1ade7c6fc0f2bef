package verbs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/talos"
	"talos-proxmox/internal/tlsprobe"
	"talos-proxmox/talosops/checks"
	"talos-proxmox/talosops/talosapi"
	"talos-proxmox/talosops/verb"
)

const applyHelp = `Gives a node's machine its configuration.

It waits until the machine answers, answersWithin at most (default 10m). A machine in maintenance mode gets the
configuration only if it is the expected one: its MAC, where this computer can see it, is one of machine.macs; and if it
was configured before, its certificate has the fingerprint that ` + tlsprobe.Maintenance + ` has for it, from its
console. The configuration travels on a connection with that certificate only. A configured machine must present a
certificate of the authority of talosconfig.

A configuration that the machine has already changes nothing. Any other is applied as
docs/upgrades.md#one-machine-at-a-time says: the command waits until the cluster tolerates the loss of the machine,
drains the node if the change restarts it, applies, restarts the machine where Talos needs that, waits until it is back,
and uncordons its node. An interrupted command can be repeated. Without controlPlanes, the machine is changed
immediately. Another firewall is applied for half a minute at first (docs/networking.md#the-firewall): if this computer
then cannot connect any more, Talos reverts it, and the command fails. A new machine does not get one that does not
admit the address with which this computer is connected to it.

With the variable ` + request.ForceVariable + `, the machine is changed although its cluster is not steady. worker,
configured (an earlier run configured the machine; PULUMI_COMMAND_STDOUT says that as well), skipped (leave the machine
as it is) and bootstrapped (the cluster was) can be omitted.`

const (
	defaultAnswerTimeout = 10 * time.Minute
	configurationCheck   = "configuration"
)

// applyRequest names a machine and its configuration.
type applyRequest struct {
	request.Apply
	verb.Base

	answersWithin time.Duration
}

func (r *applyRequest) node() request.Node { return request.NodeOf(r.Machine) }

func (r *applyRequest) Problems() problem.List {
	problems := r.OpenTalos(r.Talosconfig)
	r.answersWithin = verb.ParseDuration("answersWithin", r.AnswersWithin, defaultAnswerTimeout, &problems)

	if r.Machine.Name == "" || !r.Machine.Address.IsValid() {
		problems.Add("machine", nil, "has no name or no address: set both")
	}

	if r.Configuration == "" && !r.Skipped {
		problems.Add("configuration", nil, "is missing: set the machine configuration")
	}

	if len(r.ControlPlanes) == 0 {
		return problems
	}

	workers := verb.NodeGroup{Field: "machine"}
	if r.Worker {
		workers.Nodes = []request.Node{r.node()}
	}

	return append(problems, verb.NodeProblems(r.ControlPlanes, workers)...)
}

// apply gives a machine its configuration.
type apply struct {
	change

	req      *applyRequest
	expected tlsprobe.Expected
	probe    func(ctx context.Context) tlsprobe.Answer
}

func runApply(ctx context.Context, s *verb.Session, req *applyRequest) (any, error) {
	authority, err := talos.TalosconfigAuthority(req.Talosconfig)
	if err != nil {
		return nil, err
	}

	a := &apply{
		change: change{Session: s, req: &changeRequest{Change: request.Change{
			Common: req.Common, Node: req.node(), Worker: req.Worker,
			Force: os.Getenv(request.ForceVariable) != "",
		}}},
		req: req,
		expected: tlsprobe.Expected{
			Authority: authority, MACs: req.Machine.MACs,
			Configured:  req.Configured || os.Getenv("PULUMI_COMMAND_STDOUT") != "",
			Fingerprint: tlsprobe.AnnouncedFingerprint(os.Getenv(tlsprobe.Maintenance), req.Machine.Name),
		},
	}
	a.perform = a.applyTo
	a.probe = func(ctx context.Context) tlsprobe.Answer {
		return tlsprobe.Probe(ctx, req.Machine.Address, a.expected)
	}

	return request.Applied{Applied: true}, a.run(ctx)
}

// run waits for the machine, and configures it.
func (a *apply) run(ctx context.Context) error {
	if a.req.Skipped {
		a.PrintNote(ctx, a.req.Machine.Name, configurationCheck, "is skipped: the machine does not answer")

		return nil
	}

	answer, err := tlsprobe.Await(ctx, a.req.Machine, a.req.answersWithin, a.probe, a.Print)
	if err != nil {
		return err
	}

	if !answer.Configured {
		if answer, err = a.provision(ctx, answer); err != nil || !answer.Configured {
			return err
		}
	}

	return a.reconfigure(ctx)
}

// provision configures a machine in maintenance mode. If the call's result is lost, the machine is asked again: the
// answer is that of a configured machine if it has the configuration.
func (a *apply) provision(ctx context.Context, answer tlsprobe.Answer) (tlsprobe.Answer, error) {
	var refusal error

	n := a.req.node()
	goal := checks.Goal{
		Before: n.Name + " had its configuration", Missed: n.Name + " did not take its configuration",
		Remedy: "look at the console of its VM in Proxmox",
	}

	err := a.Within(ctx, a.req.answersWithin, goal, func(ctx context.Context) checks.Report {
		switch {
		case answer.Configured:
			return nil
		case answer.Unproven:
			refusal = a.req.Machine.UnprovenError(answer)

			return nil
		}

		what, detail := answer.Text, ""

		if answer.Ready {
			if refusal = a.checkFirewall(answer.Source); refusal != nil {
				return nil
			}

			pinned := a.expected.PinnedConfig(a.req.Machine.Address, answer)
			err := a.Talos.Provision(ctx, n.Address, pinned, []byte(a.req.Configuration))

			switch status.Code(err) { //nolint:exhaustive // the rest is repeated
			case codes.OK:
				a.PrintNote(ctx, n.Name, configurationCheck, "is applied")

				return nil
			case codes.InvalidArgument:
				refusal = fmt.Errorf("%s refuses its configuration: %s", n.Name, talosapi.Cause(err))

				return nil
			}

			what, detail = "was not taken", talosapi.Cause(err)
		}

		answer = a.probe(ctx)

		return checks.Problem(n.Name, configurationCheck, what, detail)
	})

	return answer, errors.Join(refusal, err)
}

// reconfigure configures a machine that has a configuration.
func (a *apply) reconfigure(ctx context.Context) error {
	n := a.req.node()

	effect, err := a.Talos.DryRun(ctx, n.Address, []byte(a.req.Configuration))
	if err != nil {
		return fmt.Errorf("%s refuses its configuration: %s", n.Name, talosapi.Cause(err))
	}

	if effect.Effect == talosapi.Unchanged {
		if applied, err := a.replaceStaged(ctx); err != nil || applied {
			return err
		}
	}

	if len(a.ControlPlanes) == 0 {
		return a.reconfigureAlone(ctx, effect)
	}

	if effect.Effect == talosapi.Unchanged {
		return a.finishInterrupted(ctx)
	}

	a.pending = effect.Pending
	a.change.req.Restart = effect.Effect == talosapi.WithReboot || len(a.pending) > 0

	reason, err := a.reasonOfCluster(ctx)
	if err != nil {
		return err
	}

	if reason != "" {
		return a.changeImmediately(ctx, reason)
	}

	if err := a.connect(ctx); err != nil {
		return err
	}

	return a.changeInCluster(ctx)
}

// replaceStaged applies the configuration to a machine that runs it, and has another one on its disk for its next boot.
func (a *apply) replaceStaged(ctx context.Context) (applied bool, err error) {
	n := a.req.node()

	active, staged, err := a.Talos.Configuration(ctx, n.Address)
	if err != nil || staged == "" {
		return false, err
	}

	if paths, err := talos.ConfigurationDifferences(active, staged); err != nil || len(paths) == 0 {
		return false, err
	}

	a.PrintNote(ctx, n.Name, configurationCheck, "runs, and replaces another one that was to take effect at the next boot")

	refusal, err := a.applyTo(ctx)

	return true, errors.Join(refusal, err)
}

const unchangedNote = "has this configuration already"

// reconfigureAlone configures a machine of which no cluster is known, and restarts nothing.
func (a *apply) reconfigureAlone(ctx context.Context, effect talosapi.DryRunResult) error {
	n := a.req.node()
	if effect.Effect == talosapi.Unchanged {
		a.PrintNote(ctx, n.Name, configurationCheck, unchangedNote)

		return nil
	}

	refusal, err := a.applyTo(ctx)
	if err := errors.Join(refusal, err); err != nil || len(effect.Pending) == 0 {
		return err
	}

	a.PrintNote(ctx, n.Name, configurationCheck, "is applied, and these take effect after a restart of the machine: "+
		strings.Join(effect.Pending, ", "))

	return nil
}

// finishInterrupted restarts a machine that an interrupted run has configured and not restarted.
func (a *apply) finishInterrupted(ctx context.Context) error {
	name := a.req.Machine.Name
	a.perform = func(context.Context) (refusal, err error) { return nil, nil }

	if a.connect(ctx) != nil || !a.hasPendingRestart(ctx) {
		a.PrintNote(ctx, name, configurationCheck, unchangedNote)

		return nil
	}

	return a.changeInCluster(ctx)
}

// applyTo applies the configuration to a configured machine, after a trial of its firewall. A call whose result is lost
// has succeeded if the machine has the configuration.
func (a *apply) applyTo(ctx context.Context) (refusal, err error) {
	if refusal, err := a.tryFirewall(ctx); refusal != nil || err != nil {
		return refusal, err
	}

	n := a.req.node()

	failure := a.Talos.Apply(ctx, n.Address, []byte(a.req.Configuration))
	if failure == nil {
		return nil, nil
	}

	if status.Code(failure) == codes.Unavailable {
		now, err := a.Talos.DryRun(ctx, n.Address, []byte(a.req.Configuration))
		if err == nil && now.Effect == talosapi.Unchanged {
			return nil, nil
		}
	}

	return fmt.Errorf("%s refuses its configuration: %s", n.Name, cmp.Or(talosapi.Cause(failure), failure.Error())), nil
}
