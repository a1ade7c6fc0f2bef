package machine

import (
	"context"
	"net/netip"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"talos-proxmox/lab/machine/controlplane"
	"talos-proxmox/lab/machine/etcd"
	"talos-proxmox/lab/machine/etcdmember"
	"talos-proxmox/lab/machine/services"
)

// memberHost shows a machine to its etcd member. It implements etcdmember.Machine.
type memberHost struct{ k *realKubernetes }

var _ etcdmember.Machine = memberHost{}

// Host implements etcdmember.Machine.
func (h memberHost) Host() (controlplane.Host, error) { return h.k.host() }

// Report implements etcdmember.Machine.
func (h memberHost) Report(state, message string) { h.k.m.setEtcd(state, message) }

// Process implements etcdmember.Machine.
func (h memberHost) Process(err error) { h.k.process(err) }

// AwaitMember implements etcdmember.Machine.
func (h memberHost) AwaitMember(ctx context.Context) (peer netip.Addr, found bool) {
	m := h.k.m

	found = m.cluster.await(ctx, func() bool {
		// A member whose data is lost joins again, as on Talos.
		if m.disk.Etcd != nil && m.disk.Etcd.Initial == "" && !h.k.hasEtcdData() {
			m.disk.Etcd = nil
		}

		// A lab that was killed may not have written what it knew of its member, but the member has data.
		if m.disk.Etcd == nil && h.k.hasEtcdData() {
			m.disk.Etcd = &etcd.Data{}
		}

		if m.disk.Etcd != nil || h.k.recovers() != nil {
			return true
		}

		o := m.joinable()
		if o == nil {
			return false
		}

		peer = o.etcdAddress()

		return peer.IsValid()
	})

	return peer, found
}

// AwaitBootstrap implements etcdmember.Machine.
func (h memberHost) AwaitBootstrap(ctx context.Context) {
	h.k.m.cluster.await(ctx, func() bool { return h.k.recovers() != nil || h.k.m.disk.Etcd != nil })
}

// AwaitStart implements etcdmember.Machine.
func (h memberHost) AwaitStart(ctx context.Context) {
	m := h.k.m
	m.cluster.await(ctx, func() bool { return m.disk.Etcd == nil && !m.services.Stopped("etcd") })
}

// Joined implements etcdmember.Machine.
func (h memberHost) Joined(id uint64, initial string) {
	m := h.k.m

	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	m.disk.Etcd = &etcd.Data{MemberID: id, Initial: initial}
	m.save()
	m.logf("[talos] etcd: joining as learner %s", etcd.FormatID(id))
}

// Start implements etcdmember.Machine.
func (h memberHost) Start() (initial string, begins, has bool) {
	h.k.m.ms.mu.Lock()
	defer h.k.m.ms.mu.Unlock()

	if d := h.k.m.disk.Etcd; d != nil {
		return d.Initial, d.New, true
	}

	return "", false, false
}

// Recovery implements etcdmember.Machine.
func (h memberHost) Recovery() (skipHash, asked bool) {
	h.k.m.ms.mu.Lock()
	defer h.k.m.ms.mu.Unlock()

	r := h.k.recovers()
	h.k.recovery = nil

	return r != nil && r.skipHash, r != nil
}

// Recovered implements etcdmember.Machine.
func (h memberHost) Recovered() {
	m := h.k.m

	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	// The recovered cluster has the first one's id and older data than is known of that.
	for id, e := range m.cluster.etcds {
		if !e.Running() {
			delete(m.cluster.etcds, id)
		}
	}

	m.logf("[talos] etcd: recovered from the snapshot")
	h.k.bootstrap()
}

// Ended implements etcdmember.Machine.
func (h memberHost) Ended() (left bool) {
	m := h.k.m

	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	left = m.disk.Etcd == nil
	m.stopEtcd()

	return left
}

// Voter implements etcdmember.Machine.
func (h memberHost) Voter(id uint64) netip.Addr {
	m := h.k.m

	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	if e := m.cluster.etcds[id]; e != nil {
		if a := e.AddressBut(runner{m}); a.IsValid() {
			return a
		}
	}

	return m.etcdAddress()
}

// Saw implements etcdmember.Machine.
func (h memberHost) Saw(st *etcdserverpb.StatusResponse, members []controlplane.Member, err error) (gone bool) {
	m := h.k.m

	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	if m.disk.Etcd == nil || m.services.Get("etcd").State == services.Failed {
		return true
	}

	if err != nil {
		m.stopEtcd() // its process is down, or starting

		return false
	}

	// A learner that has not started yet has another answer than those that count.
	id, member := st.GetHeader().GetClusterId(), st.GetHeader().GetMemberId()
	if m.cluster == nil || id == 0 {
		return false
	}

	if m.disk.Etcd.ClusterID != id || m.disk.Etcd.MemberID != member || m.disk.Etcd.Initial != "" {
		m.disk.Etcd = &etcd.Data{ClusterID: id, MemberID: member}
		m.save()
	}

	e := m.cluster.etcds[id]
	if e == nil {
		e = etcd.New(etcdMachines{m.ms}, id, true)
		m.cluster.etcds[e.ID] = e
	}

	//nolint:gosec // revisions count from 1
	changed := e.Saw(members, st.GetLeader(), uint64(st.GetHeader().GetRevision())) || m.etcd != e

	if m.etcd != e {
		m.etcd = e
		e.Start(runner{m})
		m.services.Set("etcd", services.Running, "Health check successful")
	}

	if changed {
		m.changedEtcd(e)
	}

	return false
}
