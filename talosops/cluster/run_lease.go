package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"talos-proxmox/talosops/talosapi"
)

// runLeaseTimeout is how long a run tries to read the lease if no Kubernetes API answers.
const runLeaseTimeout = 90 * time.Second

// WithRunLease calls do while no other run works on the cluster. It connects with the first of the clients that the
// control planes accept. If the lease cannot be read, do runs nevertheless: the run may be what repairs the cluster.
func (c *Cluster) WithRunLease(
	ctx context.Context, purpose string, do func(context.Context) error, clients ...talosapi.API,
) error {
	var problems []error

	for _, client := range clients {
		viaClient := *c
		viaClient.Talos = client

		reconnect := func(ctx context.Context) (*Cluster, error) { return viaClient.Connect(ctx, c.ControlPlanes) }

		connected, err := reconnect(ctx)
		if err == nil {
			return connected.withRunLease(ctx, purpose, reconnect, do)
		}

		problems = append(problems, err)
	}

	return c.runWithoutLease(ctx, errors.Join(problems...), do)
}

func (c *Cluster) runWithoutLease(ctx context.Context, why error, do func(context.Context) error) error {
	c.Print(fmt.Sprintf("cannot tell whether another run works on the cluster: %v", why))

	return do(ctx)
}

func (c *Cluster) withRunLease(
	ctx context.Context, purpose string, reconnect func(context.Context) (*Cluster, error), do func(context.Context) error,
) error {
	h := c.newLeaseHolder(runLeaseName, purpose)
	h.reconnect = reconnect

	err := h.acquire(ctx, min(runLeaseTimeout, c.Timeout))

	switch {
	case err == nil:
		return h.run(ctx, do)
	case h.holder == "" && ctx.Err() == nil:
		return c.runWithoutLease(ctx, err, do)
	default:
		return err
	}
}
