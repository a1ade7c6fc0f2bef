package etcdmember

import (
	"context"
	"net/netip"

	"talos-proxmox/lab/machine/controlplane"
)

// WithClient calls a function with a client of the member at an address, authenticated as the machine; of the machine's
// own member if the address is invalid.
func (r *Member) WithClient(ctx context.Context, address netip.Addr,
	fn func(context.Context, controlplane.Etcd) error,
) error {
	host, err := r.m.Host()
	if err != nil {
		return err
	}

	if !address.IsValid() {
		address = host.Etcd
	}

	return withClient(ctx, host, address, func(ctx context.Context, c *controlplane.EtcdClient) error {
		return fn(ctx, c)
	})
}

func withClient(ctx context.Context, host controlplane.Host, address netip.Addr,
	fn func(context.Context, *controlplane.EtcdClient) error,
) error {
	client, err := host.EtcdClient(address)
	if err != nil {
		return err
	}
	defer client.Close()

	return fn(ctx, client)
}
