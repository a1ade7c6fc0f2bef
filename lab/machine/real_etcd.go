package machine

import (
	"context"
	"net/netip"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"talos-proxmox/lab/machine/controlplane"
	"talos-proxmox/lab/machine/etcd"
	"talos-proxmox/lab/machine/services"
)

// runEtcd implements kubernetes.
func (k *realKubernetes) runEtcd(ctx context.Context) {
	if k.m.awaitEtcdAddress(ctx) {
		k.member.Run(ctx)
	}
}

// removeMember implements kubernetes.
func (k *realKubernetes) removeMember(ctx context.Context, e *etcd.Cluster, id uint64) error {
	if err := k.member.Ask(ctx, k.memberOf(e), func(ctx context.Context, c *controlplane.EtcdClient) error {
		return c.Remove(ctx, id)
	}); err != nil {
		return err
	}

	k.m.ms.mu.Lock()
	defer k.m.ms.mu.Unlock()

	e.Forget(id)
	e.Dismiss(id)

	return nil
}

// leaveEtcd implements kubernetes: another member leads, the machine's own is removed, and its data with it.
func (k *realKubernetes) leaveEtcd(ctx context.Context) error {
	m := k.m

	m.ms.mu.Lock()
	e := m.etcd

	if e == nil {
		m.ms.mu.Unlock()

		return errNoEtcd
	}

	id := m.disk.Etcd.MemberID
	m.ms.mu.Unlock()

	if _, err := k.moveLeader(ctx, e); err != nil {
		return err
	}

	// Talos asks any member; the machine's own is no longer there to ask once it is removed.
	if err := k.member.Leave(ctx, id, func() netip.Addr { return k.anotherOf(e) }); err != nil {
		return err
	}

	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	e.Forget(id)

	m.disk.Etcd = nil
	m.save()
	m.stopEtcd()
	m.services.Set("etcd", services.Finished, "Service finished successfully")

	return nil
}

// moveLeader implements kubernetes.
func (k *realKubernetes) moveLeader(ctx context.Context, e *etcd.Cluster) (string, error) {
	m := k.m

	m.ms.mu.Lock()
	to := m.successor(e)

	var next etcd.Member
	if to != nil {
		next = *to
	}
	m.ms.mu.Unlock()

	if to == nil {
		return "", nil
	}

	err := k.withOwn(ctx, func(ctx context.Context, c *controlplane.EtcdClient) error {
		return c.MoveLeader(ctx, next.ID)
	})

	return next.Name, err
}

// etcdStatus implements kubernetes.
func (k *realKubernetes) etcdStatus(ctx context.Context) (st controlplane.EtcdStatus, err error) {
	err = k.withOwn(ctx, func(ctx context.Context, c *controlplane.EtcdClient) error {
		st, err = c.Status(ctx)

		return err
	})

	return st, err
}

// snapshot implements kubernetes.
func (k *realKubernetes) snapshot(ctx context.Context, e *etcd.Cluster, send func([]byte) error) error {
	return k.member.Ask(ctx, k.memberOf(e), func(ctx context.Context, c *controlplane.EtcdClient) error {
		return c.Snapshot(ctx, send)
	})
}

// alarms implements kubernetes.
func (k *realKubernetes) alarms(ctx context.Context, disarm bool) (list []*etcdserverpb.AlarmMember, err error) {
	err = k.withOwn(ctx, func(ctx context.Context, c *controlplane.EtcdClient) error {
		if disarm {
			list, err = c.DisarmAlarms(ctx)
		} else {
			list, err = c.Alarms(ctx)
		}

		return err
	})

	return list, err
}

// defragment implements kubernetes.
func (k *realKubernetes) defragment(ctx context.Context) error {
	return k.withOwn(ctx, func(ctx context.Context, c *controlplane.EtcdClient) error { return c.Defragment(ctx) })
}

// withOwn asks the machine's own member.
func (k *realKubernetes) withOwn(ctx context.Context, ask func(context.Context, *controlplane.EtcdClient) error) error {
	return k.member.Ask(ctx, netip.Addr{}, ask)
}

// memberOf is where a cluster can be asked: invalid for the machine's own member, else that of another one that runs.
func (k *realKubernetes) memberOf(e *etcd.Cluster) netip.Addr {
	k.m.ms.mu.Lock()
	own := k.m.etcd == e
	k.m.ms.mu.Unlock()

	if own {
		return netip.Addr{}
	}

	return k.anotherOf(e)
}

// anotherOf is where a cluster's other members can be asked: that of one that runs, invalid where there is none.
func (k *realKubernetes) anotherOf(e *etcd.Cluster) netip.Addr {
	k.m.ms.mu.Lock()
	defer k.m.ms.mu.Unlock()

	return e.AddressBut(runner{k.m})
}
