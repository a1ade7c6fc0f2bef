package cluster

import "context"

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
	return c.withRunLease(ctx, purpose, reconnect, do)
}
