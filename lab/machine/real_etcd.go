package machine

import (
	"context"
	"net/netip"

	"talos-proxmox/lab/machine/controlplane"
	"talos-proxmox/lab/machine/etcd"
)

// runEtcd implements kubernetes.
func (k *realKubernetes) runEtcd(ctx context.Context) {
	if k.m.awaitEtcdAddress(ctx) {
		k.member.Run(ctx)
	}
}

// askEtcd implements kubernetes.
func (k *realKubernetes) askEtcd(
	ctx context.Context, _ *etcd.Cluster, at netip.Addr, ask func(context.Context, controlplane.Etcd) error,
) error {
	return k.member.Ask(ctx, at, ask)
}
