package verbs

import (
	"cmp"
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/cluster"
	"talos-proxmox/talosops/verb"
)

const holdHelp = `Holds a cluster's lease for a whole run of a stack, so that no other run changes the cluster
between two steps: docs/upgrades.md#one-run-at-a-time says why.

It reads the request, waits until no other run holds the cluster, and prints {"ready":true}. It holds the Lease
kube-system/talos-proxmox-run until it reads {"outcome":"succeeded"} or {"outcome":"failed"}, the end of the input, or
an interrupt. timeout applies to each other run. If a step of the run has begun a maintenance, it then runs the command
after it (docs/upgrades.md#before-and-after); at the beginning, it does so for a run that was killed.`

type holdRequest struct {
	request.Hold
	verb.Base
}

func (*holdRequest) Interactive() {}

func (r *holdRequest) Problems() problem.List {
	return append(r.OpenTalos(r.Talosconfig), verb.NodeProblems(r.ControlPlanes)...)
}

func runHold(ctx context.Context, s *verb.Session, req *holdRequest) (any, error) {
	// Its caller may be gone, and nobody reads the progress: that does not end it.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)

	return nil, s.WithRunLease(ctx, "brings stack "+req.Stack+" up", holdUntilEnd(ctx, s), s.Talos)
}

// holdUntilEnd tells the caller that the run may proceed, and waits for its end, or an interrupt.
func holdUntilEnd(interrupted context.Context, s *verb.Session) cluster.Run {
	return func(ctx context.Context) (request.RunOutcome, error) {
		if err := verb.PrintResult(s.Out, request.Ready{Ready: true}); err != nil {
			return request.Interrupted, err
		}

		over := make(chan request.RunOutcome, 1)

		go func() {
			var held request.Held
			if s.In.Decode(&held) != nil { // the caller is gone
				held.Outcome = request.Interrupted
			}

			over <- held.Outcome
		}()

		select {
		case outcome := <-over:
			return outcome, nil
		case <-ctx.Done():
			return request.Interrupted, cmp.Or(interrupted.Err(), errOtherRun)
		}
	}
}

var errOtherRun = errors.New("another run may work on the cluster now: see what it does, then run the same again")
