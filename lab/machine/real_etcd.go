package machine

import (
	"context"
	"net/netip"
	"path/filepath"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"talos-proxmox/lab/machine/controlplane"
	"talos-proxmox/lab/machine/etcd"
	"talos-proxmox/lab/machine/services"
)

// runEtcd implements kubernetes.
func (k *realKubernetes) runEtcd(ctx context.Context) {
	if k.awaitEtcd(ctx) {
		k.member.Run(ctx)
	}
}

// withEtcd implements kubernetes.
func (k *realKubernetes) withEtcd(
	ctx context.Context, _ *etcd.Cluster, at netip.Addr, fn func(context.Context, controlplane.Etcd) error,
) error {
	return k.member.WithClient(ctx, at, fn)
}

// bootstrap implements kubernetes.
func (k *realKubernetes) bootstrap() {
	k.disk.Etcd = &etcd.Data{Initial: controlplane.InitialMember(k.hostname, k.EtcdAddress()), New: true}
	k.save()
	k.logfLocked("[talos] etcd: bootstrapping a cluster")
	k.cluster.changed.fire()
}

// recovery is a requested recovery from a snapshot. It is kept in memory only: a reboot loses it, as on Talos.
type recovery struct {
	skipHash bool
	boot     string
}

// pendingRecovery returns the recovery requested since the machine booted; the caller holds the machines' lock.
func (k *realKubernetes) pendingRecovery() *recovery {
	if k.recovery == nil || k.recovery.boot != k.bootID {
		return nil
	}

	return k.recovery
}

// snapshotPath implements kubernetes.
func (k *realKubernetes) snapshotPath() (string, error) {
	host, err := k.Host()

	return host.SnapshotFile(), err
}

// databasePath implements kubernetes.
func (k *realKubernetes) databasePath() string {
	dir, err := k.folder()
	if err != nil {
		return ""
	}

	return filepath.Join(dir, "etcd", "member", "snap", "db")
}

// recoverEtcd implements kubernetes.
func (k *realKubernetes) recoverEtcd(skipHash bool) error {
	k.recovery = &recovery{skipHash, k.bootID}
	k.cluster.changed.fire()

	return nil
}

// AwaitMember implements etcdmember.Machine.
func (k *realKubernetes) AwaitMember(ctx context.Context) (peer netip.Addr, found bool) {
	found = k.cluster.await(ctx, func() bool {
		// A member that lost its data joins again, as on Talos.
		if k.disk.Etcd != nil && k.disk.Etcd.Initial == "" && !k.hasEtcdData() {
			k.disk.Etcd = nil
		}

		// A killed lab may not have saved the state of a member that has data.
		if k.disk.Etcd == nil && k.hasEtcdData() {
			k.disk.Etcd = &etcd.Data{}
		}

		if k.disk.Etcd != nil || k.pendingRecovery() != nil {
			return true
		}

		o := k.findJoinable()
		if o == nil {
			return false
		}

		peer = o.EtcdAddress()

		return peer.IsValid()
	})

	return peer, found
}

// AwaitBootstrap implements etcdmember.Machine.
func (k *realKubernetes) AwaitBootstrap(ctx context.Context) {
	k.cluster.await(ctx, func() bool { return k.pendingRecovery() != nil || k.disk.Etcd != nil })
}

// AwaitStart implements etcdmember.Machine.
func (k *realKubernetes) AwaitStart(ctx context.Context) {
	k.cluster.await(ctx, func() bool { return k.disk.Etcd == nil && !k.services.Stopped("etcd") })
}

// MemberJoined implements etcdmember.Machine.
func (k *realKubernetes) MemberJoined(id uint64, initial string) {
	k.ms.mu.Lock()
	defer k.ms.mu.Unlock()

	k.disk.Etcd = &etcd.Data{MemberID: id, Initial: initial}
	k.save()
	k.logfLocked("[talos] etcd: joining as learner %s", etcd.FormatID(id))
}

// InitialCluster implements etcdmember.Machine.
func (k *realKubernetes) InitialCluster() (initial string, bootstrap, ok bool) {
	k.ms.mu.Lock()
	defer k.ms.mu.Unlock()

	if d := k.disk.Etcd; d != nil {
		return d.Initial, d.New, true
	}

	return "", false, false
}

// Recovery implements etcdmember.Machine.
func (k *realKubernetes) Recovery() (skipHash, requested bool) {
	k.ms.mu.Lock()
	defer k.ms.mu.Unlock()

	r := k.pendingRecovery()
	k.recovery = nil

	return r != nil && r.skipHash, r != nil
}

// Recovered implements etcdmember.Machine.
func (k *realKubernetes) Recovered() {
	k.ms.mu.Lock()
	defer k.ms.mu.Unlock()

	// The recovered cluster has the same id, but older data than is known.
	for id, e := range k.cluster.etcds {
		if !e.AnyRunning() {
			delete(k.cluster.etcds, id)
		}
	}

	k.logfLocked("[talos] etcd: recovered from the snapshot")
	k.bootstrap()
}

// MemberStopped implements etcdmember.Machine.
func (k *realKubernetes) MemberStopped() (left bool) {
	k.ms.mu.Lock()
	defer k.ms.mu.Unlock()

	left = k.disk.Etcd == nil
	k.stopEtcd()

	return left
}

// Voter implements etcdmember.Machine.
func (k *realKubernetes) Voter(id uint64) netip.Addr {
	k.ms.mu.Lock()
	defer k.ms.mu.Unlock()

	if e := k.cluster.etcds[id]; e != nil {
		if a := e.OtherAddress(k.machine); a.IsValid() {
			return a
		}
	}

	return k.EtcdAddress()
}

// ObserveMember implements etcdmember.Machine.
func (k *realKubernetes) ObserveMember(
	st *etcdserverpb.StatusResponse, members []controlplane.Member, err error,
) (gone bool) {
	k.ms.mu.Lock()
	defer k.ms.mu.Unlock()

	if k.disk.Etcd == nil || k.services.Get("etcd").State == services.Failed {
		return true
	}

	if err != nil {
		k.stopEtcd() // its process is down or starting

		return false
	}

	// A learner that is still starting reports no valid ids.
	id, member := st.GetHeader().GetClusterId(), st.GetHeader().GetMemberId()
	if k.cluster == nil || id == 0 {
		return false
	}

	if k.disk.Etcd.ClusterID != id || k.disk.Etcd.MemberID != member || k.disk.Etcd.Initial != "" {
		k.disk.Etcd = &etcd.Data{ClusterID: id, MemberID: member}
		k.save()
	}

	e := k.cluster.etcds[id]
	if e == nil {
		e = etcd.New(etcdMachines{k.ms}, id, true)
		k.cluster.etcds[e.ID] = e
	}

	//nolint:gosec // revisions count from 1
	changed := e.Observe(members, st.GetLeader(), uint64(st.GetHeader().GetRevision())) || k.etcd != e

	if k.etcd != e {
		k.etcd = e
		e.Start(k.machine)
		k.services.Set("etcd", services.Running, "Health check successful")
	}

	if changed {
		k.notifyEtcdChanged(e)
	}

	return false
}
