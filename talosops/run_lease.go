package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// runSilence is how long a run asks who else changes the cluster, where no Kubernetes API answers.
const runSilence = 90 * time.Second

// holdRun does what several steps change a cluster for, while no other run changes it. The clients are those that its
// control planes may let in. Where nobody says whether another run works on the cluster, it goes on: the cluster may be
// what the run is to repair.
func (c *cluster) holdRun(
	ctx context.Context, what string, do func(context.Context) error, clients ...talosAPI,
) error {
	var problems []error

	for _, client := range clients {
		reached := *c
		reached.talos = client

		reopen := func(ctx context.Context) (*cluster, error) { return reached.connect(ctx, c.controlPlanes) }

		connected, err := reopen(ctx)
		if err == nil {
			return connected.holdRunWith(ctx, what, reopen, do)
		}

		problems = append(problems, err)
	}

	return c.unasked(ctx, errors.Join(problems...), do)
}

func (c *cluster) unasked(ctx context.Context, why error, do func(context.Context) error) error {
	c.print(fmt.Sprintf("nobody says whether another run works on the cluster: %v", why))

	return do(ctx)
}

func (c *cluster) holdRunWith(
	ctx context.Context, what string, reopen func(context.Context) (*cluster, error), do func(context.Context) error,
) error {
	h := c.holding(runLeaseName, what)
	h.reopen = reopen

	err := h.acquire(ctx, min(runSilence, c.timeout))

	switch {
	case err == nil:
		return h.during(ctx, do)
	case h.waitsFor == "" && ctx.Err() == nil:
		return c.unasked(ctx, err, do)
	default:
		return err
	}
}
