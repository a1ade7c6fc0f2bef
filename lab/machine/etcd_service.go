package machine

import (
	"context"
	"net/netip"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config"

	"talos-proxmox/lab/machine/certificates"
	"talos-proxmox/lab/machine/etcd"
	"talos-proxmox/lab/machine/network"
	"talos-proxmox/lab/machine/pods"
	"talos-proxmox/lab/machine/services"
)

// runEtcd implements kubernetes.
func (m modelKubernetes) runEtcd(ctx context.Context) {
	if !m.awaitEtcd(ctx) {
		return
	}

	for ctx.Err() == nil {
		joined := false

		m.ReportEtcd(services.Preparing, "Running pre state")

		if !m.cluster.await(ctx, func() bool {
			if m.disk.Etcd == nil {
				if o := m.findJoinable(); o != nil {
					m.joinEtcd(o.etcd)

					joined = true
				}
			}

			return m.disk.Etcd != nil
		}) {
			return
		}

		if joined || m.restoreEtcd() {
			m.serveEtcd(ctx, joined)
		}

		// A member that left joins again when its service is started; a removed one does not.
		m.cluster.await(ctx, func() bool { return m.disk.Etcd == nil && !m.services.Stopped("etcd") })
	}
}

// findJoinable returns a control plane whose etcd cluster is healthy, has the same authority and accepts a learner now;
// the caller holds the lock.
func (m *machine) findJoinable() *machine {
	for _, o := range m.cluster.controlPlanes() {
		if o == m || o.etcd == nil || !o.apidUp || !o.etcd.HasQuorum() || o.etcd.HasLearner() ||
			!certificates.SameEtcdCA(m.config, o.config) {
			continue
		}

		if m.discovers(o) || m.endpointReaches(o) {
			return o
		}
	}

	return nil
}

// joinEtcd joins a cluster as a learner; the caller holds the lock.
func (m *machine) joinEtcd(e *etcd.Cluster) {
	m.etcd = e
	learner := e.Join(m, m.hostname, m.EtcdAddress(), func(d *etcd.Data) { m.disk.Etcd = d })
	m.logfLocked("[talos] etcd: joining cluster %s as learner %s", etcd.FormatID(e.ID), etcd.FormatID(learner.ID))
	m.cluster.changed.fire()
}

// EtcdAddress returns the address that etcd advertises: one in the configured subnets, or the node address if there are
// none. It is invalid if there is no such address or the machine is going down.
func (m *machine) EtcdAddress() netip.Addr {
	if m.config == nil {
		return netip.Addr{}
	}

	subnets := m.config.Cluster().Etcd().AdvertisedSubnets()
	if len(subnets) == 0 {
		return m.net.Node
	}

	for _, p := range network.ExcludeClusterNetworks(m.net.Addresses, m.config) {
		if network.InSubnets(p.Addr(), subnets) {
			return p.Addr()
		}
	}

	return netip.Addr{}
}

// awaitEtcd waits until the machine has an address for etcd, its time and its image; Talos starts etcd no earlier.
func (m *machine) awaitEtcd(ctx context.Context) bool {
	m.ms.mu.Lock()
	if !m.EtcdAddress().IsValid() {
		m.services.Set("etcd", services.Waiting, "Waiting for etcd spec")
		m.logfLocked("[talos] etcd: no address of this machine is in cluster.etcd.advertisedSubnets")
	}
	m.ms.mu.Unlock()

	return m.cluster.await(ctx, func() bool { return m.EtcdAddress().IsValid() }) && m.awaitTime(ctx, "etcd") &&
		m.awaitImage(ctx, "etcd", func(cfg config.Config) string { return cfg.Cluster().Etcd().Image() })
}

// bootstrap implements kubernetes: it bootstraps a cluster on this machine.
func (m modelKubernetes) bootstrap() {
	e, data := etcd.Bootstrap(etcdMachines{m.ms}, m.hostname, m.EtcdAddress())
	m.cluster.etcds[e.ID] = e
	m.disk.Etcd = data
	m.save()
	m.logfLocked("[talos] etcd: bootstrapped cluster %s", etcd.FormatID(e.ID))
	m.cluster.changed.fire()
}

// restoreEtcd restores the cluster of the member on disk, from memory or from the newest copy seen. It returns false if
// the member was removed from the cluster.
func (m *machine) restoreEtcd() bool {
	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	data := m.disk.Etcd
	if data == nil { // left the cluster meanwhile
		return false
	}

	e := m.cluster.etcds[data.ClusterID]
	if e == nil {
		e = etcd.New(etcdMachines{m.ms}, data.ClusterID, false)
		m.cluster.etcds[e.ID] = e
	}

	e.Restore(data)

	if e.Member(data.MemberID) == nil {
		m.services.Set("etcd", services.Failed, "the member has been permanently removed from the cluster")

		return false
	}

	return true
}

// serveEtcd runs the member until it leaves its cluster or the machine stops.
func (m *machine) serveEtcd(ctx context.Context, learner bool) {
	wait := m.durations().EtcdBootstrap
	if learner {
		wait = m.durations().EtcdJoin
	}

	m.ReportEtcd(services.Preparing, "Starting etcd member")

	if !m.sleep(ctx, wait) {
		return
	}

	m.ms.mu.Lock()

	e := m.etcd
	if data := m.disk.Etcd; e == nil && data != nil {
		e = m.cluster.etcds[data.ClusterID]
		m.etcd = e
		e.Start(m)
	}

	m.services.Set("etcd", services.Running, "Health check successful")
	m.notifyEtcdChanged(e)
	m.ms.mu.Unlock()

	if e == nil {
		return
	}

	m.cluster.await(ctx, func() bool {
		m.promote(e)

		return m.etcd != e
	})
}

// promote promotes the machine's learner once it runs and the others have quorum; the caller holds the lock.
func (m *machine) promote(e *etcd.Cluster) {
	if m.etcd == e && e.Promote(m.disk.Etcd.MemberID) {
		m.logfLocked("[talos] etcd: learner %s promoted", etcd.FormatID(m.disk.Etcd.MemberID))
		m.notifyEtcdChanged(e)
	}
}

// notifyEtcdChanged notifies all waiters of a change of etcd; the caller holds the lock.
func (m *machine) notifyEtcdChanged(e *etcd.Cluster) {
	if e != nil {
		e.Changed()
	}

	m.cluster.changed.fire()
	m.changed.fire()
}

// stopEtcd stops the machine's member without removing it; the caller holds the lock.
func (m *machine) stopEtcd() {
	e := m.etcd
	if e == nil {
		return
	}

	m.etcd = nil
	e.Stop(m)
	m.cluster.changed.fire()
	m.changed.fire()
}

// etcdMachines gives an etcd cluster access to the machines. It implements etcd.Machines.
type etcdMachines struct{ ms *Machines }

var _ etcd.Machines = etcdMachines{}

// Lock implements etcd.Machines.
func (e etcdMachines) Lock() { e.ms.mu.Lock() }

// Unlock implements etcd.Machines.
func (e etcdMachines) Unlock() { e.ms.mu.Unlock() }

// IsPosting implements etcd.Machines.
func (e etcdMachines) IsPosting(c *etcd.Cluster, n *etcd.Node) bool {
	m := e.ms.machineOf(n)

	return m != nil && m.kubelet.posting && m.cluster != nil && m.cluster.etcds[c.ID] == c
}

// nodeGracePeriod is how long Kubernetes keeps a node's status when its kubelet stops posting
// (node-monitor-grace-period).
const nodeGracePeriod = 40 * time.Second

// InGracePeriod implements etcd.Machines.
func (e etcdMachines) InGracePeriod(n *etcd.Node) bool {
	m := e.ms.running[n.VMID]

	return m != nil && !m.kubelet.stopped.IsZero() &&
		time.Since(m.kubelet.stopped) <= e.ms.world.Clock().Real(nodeGracePeriod)
}

// GPUs implements etcd.Machines.
func (e etcdMachines) GPUs(n *etcd.Node) pods.GPUs {
	if m := e.ms.running[n.VMID]; m != nil {
		return m.gpus()
	}

	return pods.GPUs{}
}

// MemberID implements etcd.Runner.
func (m *machine) MemberID() uint64 {
	if m.disk.Etcd == nil {
		return 0
	}

	return m.disk.Etcd.MemberID
}

// SaveEtcd implements etcd.Runner.
func (m *machine) SaveEtcd(d *etcd.Data) {
	m.disk.Etcd = d
	m.save()
}

// EtcdChanged implements etcd.Runner.
func (m *machine) EtcdChanged() {
	m.finishBoot()
	m.cluster.changed.fire()
	m.changed.fire()
}

// EtcdRemoved implements etcd.Runner.
func (m *machine) EtcdRemoved() {
	m.stopEtcd()
	m.services.Set("etcd", services.Failed, "the member has been permanently removed from the cluster")
}
