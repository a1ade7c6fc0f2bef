package verbs

import (
	"cmp"
	"context"
	"errors"
	"io"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/verb"
)

const holdHelp = `Holds a cluster's lease for a whole run of a stack, so that no other run changes the cluster
between two steps: docs/upgrades.md#one-run-at-a-time says why.

It reads the request, waits until no other run holds the cluster, and prints {"ready":true}. It holds the Lease
kube-system/talos-proxmox-run until the end of the input, or an interrupt. timeout applies to each other run.`

type holdRequest struct {
	request.Hold
	verb.Base
}

func (*holdRequest) Interactive() {}

func (r *holdRequest) Problems() problem.List {
	return append(r.OpenTalos(r.Talosconfig), verb.NodeProblems(r.ControlPlanes)...)
}

func runHold(ctx context.Context, s *verb.Session, req *holdRequest) (any, error) {
	return nil, s.WithRunLease(ctx, "brings stack "+req.Stack+" up", holdUntilEOF(ctx, s), s.Talos)
}

// holdUntilEOF tells the caller that the run may proceed, and waits for the end of the input, or an interrupt.
func holdUntilEOF(interrupted context.Context, s *verb.Session) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := verb.PrintResult(s.Out, request.Ready{Ready: true}); err != nil {
			return err
		}

		over := make(chan struct{})

		go func() {
			defer close(over)

			_, _ = io.Copy(io.Discard, s.Stdin)
		}()

		select {
		case <-over:
			return nil
		case <-ctx.Done():
			return cmp.Or(interrupted.Err(), errOtherRun)
		}
	}
}

var errOtherRun = errors.New("another run may work on the cluster now: see what it does, then run the same again")
