package machine

import (
	"net/netip"
	"time"

	"talos-proxmox/lab/machine/etcd"
	"talos-proxmox/lab/machine/pods"
	"talos-proxmox/lab/machine/services"
)

// etcdMachines shows all machines to a cluster's data. It implements etcd.Machines.
type etcdMachines struct{ ms *Machines }

var _ etcd.Machines = etcdMachines{}

// Lock implements etcd.Machines.
func (e etcdMachines) Lock() { e.ms.mu.Lock() }

// Unlock implements etcd.Machines.
func (e etcdMachines) Unlock() { e.ms.mu.Unlock() }

// Posts implements etcd.Machines.
func (e etcdMachines) Posts(c *etcd.Cluster, n *etcd.Node) bool {
	m := e.ms.ofNode(n)

	return m != nil && m.kubelet.posting && m.cluster != nil && m.cluster.etcds[c.ID] == c
}

// nodeGrace is how long Kubernetes believes a silent kubelet (node-monitor-grace-period).
const nodeGrace = 40 * time.Second

// Believed implements etcd.Machines.
func (e etcdMachines) Believed(n *etcd.Node) bool {
	m := e.ms.running[n.VMID]

	return m != nil && !m.kubelet.stopped.IsZero() && time.Since(m.kubelet.stopped) <= e.ms.world.Clock().Real(nodeGrace)
}

// GPUs implements etcd.Machines.
func (e etcdMachines) GPUs(n *etcd.Node) pods.GPUs {
	if m := e.ms.running[n.VMID]; m != nil {
		return m.gpus()
	}

	return pods.GPUs{}
}

// runner is a machine whose etcd member runs. It implements etcd.Runner.
type runner struct{ *machine }

var _ etcd.Runner = runner{}

// MemberID implements etcd.Runner.
func (m runner) MemberID() uint64 {
	if m.disk.Etcd == nil {
		return 0
	}

	return m.disk.Etcd.MemberID
}

// Address implements etcd.Runner.
func (m runner) Address() netip.Addr {
	if m.config == nil {
		return netip.Addr{}
	}

	return m.etcdAddress()
}

// Keep implements etcd.Runner.
func (m runner) Keep(d *etcd.Data) {
	m.disk.Etcd = d
	m.save()
}

// Changed implements etcd.Runner.
func (m runner) Changed() {
	m.settle()
	m.cluster.changed.fire()
	m.changed.fire()
}

// Removed implements etcd.Runner.
func (m runner) Removed() {
	m.stopEtcd()
	m.services.Set("etcd", services.Failed, "the member has been permanently removed from the cluster")
}
