package cluster

import (
	"context"

	"talos-proxmox/internal/request"
)

// Unexported names for tests in package cluster_test.
const (
	LeaseDuration      = leaseDuration
	LeaseRenewDeadline = leaseRenewDeadline
	LeaseName          = leaseName
	LeaseRenewInterval = leaseRenewInterval
	RunLeaseTimeout    = runLeaseTimeout
)

// ErrLeaseLost is the error of a holder that lost the lease.
var ErrLeaseLost = errLeaseLost

// HolderIdentity is the identity of this process as a holder.
func HolderIdentity(purpose string) string { return holderIdentity(purpose) }

// WithRunLeaseOf holds the lease of a run with the clients of this cluster.
func (c *Cluster) WithRunLeaseOf(
	ctx context.Context, purpose string, reconnect func(context.Context) (*Cluster, error), do func(context.Context) error,
) error {
	return c.withRunLease(ctx, purpose, reconnect, func(ctx context.Context) (request.RunOutcome, error) {
		return request.Succeeded, do(ctx)
	})
}

// HoldRun holds the lease of a run that ends in some way.
func (c *Cluster) HoldRun(ctx context.Context, do Run) error {
	return c.withRunLease(ctx, "brings stack acme/talos-proxmox/prod up", nil, do)
}
