package cluster

import "context"

// What tests of this package see of it beside its exported names.
const (
	LeaseDuration      = leaseDuration
	LeaseRenewDeadline = leaseRenewDeadline
	LeaseName          = leaseName
	LeaseRenewInterval = leaseRenewInterval
	RunLeaseTimeout    = runLeaseTimeout
)

// ErrLeaseLost says that someone else may change the cluster now.
var ErrLeaseLost = errLeaseLost

// WithRunLeaseOf holds the lease of a run with the clients of this cluster.
func (c *Cluster) WithRunLeaseOf(
	ctx context.Context, what string, reopen func(context.Context) (*Cluster, error), do func(context.Context) error,
) error {
	return c.withRunLease(ctx, what, reopen, do)
}
