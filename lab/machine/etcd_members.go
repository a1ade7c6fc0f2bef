package machine

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"talos-proxmox/lab/machine/controlplane"
	"talos-proxmox/lab/machine/etcd"
	"talos-proxmox/lab/machine/services"
)

const (
	// leaveTimeout is how long Talos tries to leave a cluster, leaveRetryInterval the time between two attempts.
	leaveTimeout       = 5 * time.Minute
	leaveRetryInterval = time.Second
)

// withAnyMember calls a function with a client of a cluster: of the machine's own member if it belongs to the cluster,
// else of another running one.
func (m *machine) withAnyMember(
	ctx context.Context, e *etcd.Cluster, fn func(context.Context, controlplane.Etcd) error,
) error {
	at := netip.Addr{}

	m.ms.mu.Lock()
	if m.etcd != e {
		at = e.OtherAddress(m)
	}
	m.ms.mu.Unlock()

	return m.kube.withEtcd(ctx, e, at, fn)
}

// memberRemoval returns a call that removes a member from its cluster.
func memberRemoval(id uint64) func(context.Context, controlplane.Etcd) error {
	return func(ctx context.Context, c controlplane.Etcd) error {
		_, err := c.MemberRemove(ctx, &etcdserverpb.MemberRemoveRequest{ID: id})

		return err
	}
}

// removeMember removes a member from a cluster.
func (m *machine) removeMember(ctx context.Context, e *etcd.Cluster, id uint64) error {
	if err := m.withAnyMember(ctx, e, memberRemoval(id)); err != nil {
		return err
	}

	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	e.DropMember(id)
	e.StopMember(id)

	return nil
}

// leaveEtcd transfers leadership to another member, and removes the machine's own with its data.
func (m *machine) leaveEtcd(ctx context.Context) error {
	m.ms.mu.Lock()

	e := m.etcd
	if e == nil {
		m.ms.mu.Unlock()

		return errNoEtcd
	}

	id := m.disk.Etcd.MemberID
	m.ms.mu.Unlock()

	if _, err := m.moveLeader(ctx, e); err != nil {
		return err
	}

	if err := m.removeOwnMember(ctx, e, id); err != nil {
		return err
	}

	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	e.DropMember(id)

	m.disk.Etcd = nil
	m.save()
	m.stopEtcd()
	m.services.Set("etcd", services.Finished, "Service finished successfully")

	return nil
}

// removeOwnMember removes the machine's member, retrying while etcd refuses. Talos asks any member; this asks another
// one if it can, since the machine's own no longer answers once it is removed.
func (m *machine) removeOwnMember(ctx context.Context, e *etcd.Cluster, id uint64) error {
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()

	for {
		m.ms.mu.Lock()
		another := e.OtherAddress(m)
		m.ms.mu.Unlock()

		err := m.kube.withEtcd(ctx, e, another, memberRemoval(id))

		switch {
		case err == nil, isEtcdError(err, rpctypes.ErrMemberNotFound):
			return nil
		case ctx.Err() != nil || !isRetryable(err):
			return err
		}

		controlplane.Sleep(ctx, leaveRetryInterval)
	}
}

// isRetryable reports whether Talos retries to remove a member: etcd refuses for some seconds after another change of
// its members, and a member that removes itself may stop before it has answered.
func isRetryable(err error) bool {
	return isEtcdError(err, rpctypes.ErrUnhealthy) || isEtcdError(err, rpctypes.ErrStopped)
}

func isEtcdError(err, target error) bool { return strings.Contains(err.Error(), target.Error()) }

// moveLeader transfers leadership if the machine's member leads, and returns the new leader's name.
func (m *machine) moveLeader(ctx context.Context, e *etcd.Cluster) (string, error) {
	var next *controlplane.Member

	m.ms.mu.Lock()
	if m.etcd == e {
		next = e.Successor(m.disk.Etcd.MemberID)
	}
	m.ms.mu.Unlock()

	if next == nil {
		return "", nil
	}

	return next.Name, m.kube.withEtcd(ctx, e, netip.Addr{}, func(ctx context.Context, c controlplane.Etcd) error {
		_, err := c.MoveLeader(ctx, &etcdserverpb.MoveLeaderRequest{TargetID: next.ID})

		return err
	})
}

// memberAlarms returns the alarms of etcd's members, and disarms them if requested.
func memberAlarms(ctx context.Context, c controlplane.Etcd, disarm bool) ([]*etcdserverpb.AlarmMember, error) {
	found, err := c.Alarm(ctx, &etcdserverpb.AlarmRequest{Action: etcdserverpb.AlarmRequest_GET})
	if err != nil || !disarm {
		return found.GetAlarms(), err
	}

	var failures []error

	for _, a := range found.GetAlarms() {
		_, err := c.Alarm(ctx, &etcdserverpb.AlarmRequest{
			Action: etcdserverpb.AlarmRequest_DEACTIVATE, MemberID: a.GetMemberID(), Alarm: a.GetAlarm(),
		})
		failures = append(failures, err)
	}

	return found.GetAlarms(), errors.Join(failures...)
}
