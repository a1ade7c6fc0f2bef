package main

import (
	"cmp"
	"context"
	"errors"
	"io"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/request"
)

const holdHelp = `Holds a cluster for a whole run of a stack, so that no other run changes it between two steps: a
laptop and a pipeline, whose stacks have their states in different backends, do not see each other's locks.

It reads the request, waits until no other run holds the cluster, and prints {"ready":true}. The Lease
kube-system/talos-proxmox-run says who works since when until the end of the input, or an interrupt, and expires 40
seconds after its holder is gone. Where no control plane answers, or for 90 seconds no Kubernetes API, nobody can be
asked, and nobody is kept out.

timeout (default 15m, for each other run) and interval (default 2s) can be omitted.`

const holdExample = `  talosops hold < pipe

  what it reads:
  {
    "talosconfig": "context: prod\ncontexts: …",
    "controlPlanes": [{"name": "prod-cp-1", "address": "10.0.0.10"}],
    "stack": "organization/talos-proxmox/prod"
  }`

type holdRequest struct {
	request.Hold
	limits
}

func (*holdRequest) followed() {}

func (r *holdRequest) problems() problem.List {
	return append(r.openTalos(r.Talosconfig), nodeProblems(r.ControlPlanes)...)
}

func runHold(ctx context.Context, s *session, req *holdRequest) (any, error) {
	return nil, s.holdRun(ctx, "brings stack "+req.Stack+" up", untilTheEnd(ctx, s), s.talos)
}

// untilTheEnd says that the run may go on, and waits for its end: that of the input, or an interrupt.
func untilTheEnd(interrupted context.Context, s *session) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := printResult(s.out, request.Ready{Ready: true}); err != nil {
			return err
		}

		over := make(chan struct{})

		go func() {
			defer close(over)

			_, _ = io.Copy(io.Discard, s.stdin)
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
