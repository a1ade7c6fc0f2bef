package etcdmember

import (
	"context"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"talos-proxmox/lab/machine/controlplane"
)

// watch keeps the view of the cluster up to date until the member was removed from it.
func (r *Member) watch(ctx context.Context, host controlplane.Host, client *controlplane.EtcdClient) {
	for {
		st, members, err := r.queryStatus(ctx, host, client)
		if r.m.ObserveMember(st, members, err) {
			return
		}

		pause := pollInterval
		if err != nil || st.GetIsLearner() {
			pause = startPollInterval
		}

		if err == nil && st.GetIsLearner() {
			promote(ctx, host, st.GetHeader().GetMemberId(), members)
		}

		if controlplane.Sleep(ctx, pause); ctx.Err() != nil {
			return
		}
	}
}

// queryStatus returns the status of a member and the members of its cluster. A learner serves only its own status; the
// members come from a voter.
func (r *Member) queryStatus(ctx context.Context, host controlplane.Host, client *controlplane.EtcdClient) (
	st *etcdserverpb.StatusResponse, members []controlplane.Member, err error,
) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()

	if st, err = client.Status(ctx, &etcdserverpb.StatusRequest{}); err != nil {
		return st, nil, err
	}

	if !st.GetIsLearner() {
		members, err = client.Members(ctx, false)

		return st, members, err
	}

	err = withClient(ctx, host, r.m.Voter(st.GetHeader().GetClusterId()),
		func(ctx context.Context, c *controlplane.EtcdClient) error {
			members, err = c.Members(ctx, false)

			return err
		})

	return st, members, err
}

// promote asks the voters to promote a learner; they refuse until it has caught up.
func promote(ctx context.Context, host controlplane.Host, learner uint64, members []controlplane.Member) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()

	for _, voter := range members {
		if voter.Learner {
			continue
		}

		if withClient(ctx, host, voter.Address, func(ctx context.Context, c *controlplane.EtcdClient) error {
			_, err := c.MemberPromote(ctx, &etcdserverpb.MemberPromoteRequest{ID: learner})

			return err
		}) == nil {
			return
		}
	}
}
