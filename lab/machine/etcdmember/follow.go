package etcdmember

import (
	"context"

	"talos-proxmox/lab/machine/controlplane"
)

// follow keeps what is known of the cluster up to date until the member has no place in it any more.
func (r *Member) follow(ctx context.Context, host controlplane.Host, client *controlplane.EtcdClient) {
	for {
		st, members, err := r.ask(ctx, host, client)
		if r.m.Saw(st, members, err) {
			return
		}

		pause := look
		if err != nil || st.Learner {
			pause = poll
		}

		if err == nil && st.Learner {
			promote(ctx, host, st.Member, members)
		}

		if controlplane.Wait(ctx, pause); ctx.Err() != nil {
			return
		}
	}
}

// ask returns what a member says of itself and its cluster. A learner answers for nothing but itself: the others tell
// who they are.
func (r *Member) ask(
	ctx context.Context, host controlplane.Host, client *controlplane.EtcdClient,
) (controlplane.EtcdStatus, []controlplane.Member, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()

	st, err := client.Status(ctx)
	if err != nil {
		return st, nil, err
	}

	if !st.Learner {
		members, err := client.Members(ctx, false)

		return st, members, err
	}

	var members []controlplane.Member

	err = asking(ctx, host, r.m.Voter(st.Cluster), func(ctx context.Context, c *controlplane.EtcdClient) error {
		members, err = c.Members(ctx, false)

		return err
	})

	return st, members, err
}

// promote asks the voters to make a learner one of them; they refuse until it has caught up.
func promote(ctx context.Context, host controlplane.Host, learner uint64, members []controlplane.Member) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()

	for _, voter := range members {
		if voter.Learner {
			continue
		}

		client, err := host.EtcdClient(voter.Address)
		if err != nil {
			continue
		}

		err = client.Promote(ctx, learner)
		client.Close()

		if err == nil {
			return
		}
	}
}
