package etcdmember

import (
	"context"
	"net/netip"

	"talos-proxmox/lab/machine/controlplane"
)

// WithClient asks the member at an address with the machine's right to it, the machine's own where the address is invalid.
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

	return withClient(ctx, host, address, func(ctx context.Context, c *controlplane.EtcdClient) error { return fn(ctx, c) })
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
