package etcdmember

import (
	"context"
	"net/netip"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"talos-proxmox/lab/machine/controlplane"
)

// leavePatience is how long Talos tries to leave a cluster.
const leavePatience = 5 * time.Minute

// Ask asks the member at an address with the machine's right to it, the machine's own where the address is invalid.
func (r *Member) Ask(ctx context.Context, address netip.Addr,
	ask func(context.Context, *controlplane.EtcdClient) error,
) error {
	host, err := r.m.Host()
	if err != nil {
		return err
	}

	if !address.IsValid() {
		address = host.Etcd
	}

	return asking(ctx, host, address, ask)
}

// Leave removes a member as soon as etcd lets it go. It asks the member whose address is passed each time.
func (r *Member) Leave(ctx context.Context, id uint64, at func() netip.Addr) error {
	ctx, cancel := context.WithTimeout(ctx, leavePatience)
	defer cancel()

	for {
		err := r.Ask(ctx, at(), func(ctx context.Context, c *controlplane.EtcdClient) error {
			return c.Remove(ctx, id)
		})

		switch {
		case err == nil, refusal(err, rpctypes.ErrMemberNotFound):
			return nil
		case ctx.Err() != nil || !passing(err):
			return err
		}

		controlplane.Wait(ctx, look)
	}
}

// passing says that etcd may let a member go a little later, as Talos sees it: for some seconds after another change of
// its members it refuses, and a member that is asked to remove itself may stop before it has answered.
func passing(err error) bool {
	return refusal(err, rpctypes.ErrUnhealthy) || refusal(err, rpctypes.ErrStopped)
}

func refusal(err, as error) bool { return strings.Contains(err.Error(), as.Error()) }

func asking(ctx context.Context, host controlplane.Host, address netip.Addr,
	ask func(context.Context, *controlplane.EtcdClient) error,
) error {
	client, err := host.EtcdClient(address)
	if err != nil {
		return err
	}
	defer client.Close()

	return ask(ctx, client)
}
