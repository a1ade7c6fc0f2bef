package cluster

import "context"

// What tests of this package see of it beside its exported names.
const (
	LeaseDuration = leaseDuration
	LeaseLost     = leaseLost
	LeaseName     = leaseName
	LeaseRenewal  = leaseRenewal
	RunSilence    = runSilence
)

// ErrLeaseLost says that someone else may change the cluster now.
var ErrLeaseLost = errLeaseLost

// HoldRunWith holds the lease of a run with the clients of this cluster.
func (c *Cluster) HoldRunWith(
	ctx context.Context, what string, reopen func(context.Context) (*Cluster, error), do func(context.Context) error,
) error {
	return c.holdRunWith(ctx, what, reopen, do)
}
