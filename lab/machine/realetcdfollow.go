package machine

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"talos-proxmox/lab/machine/controlplane"
	"talos-proxmox/lab/machine/services"
)

// followEtcd keeps what is known of the cluster up to date until the member has no place in it any more.
func (k *realKubernetes) followEtcd(ctx context.Context, host controlplane.Host, client *controlplane.EtcdClient) {
	for {
		st, members, err := k.ask(ctx, host, client)
		if k.sawEtcd(st, members, err) {
			return
		}

		pause := etcdLook
		if err != nil || st.Learner {
			pause = etcdPoll
		}

		if err == nil && st.Learner {
			promote(ctx, host, st.Member, members)
		}

		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// ask returns what a member says of itself and its cluster. A learner answers for nothing but itself: the others tell
// who they are.
func (k *realKubernetes) ask(
	ctx context.Context, host controlplane.Host, client *controlplane.EtcdClient,
) (controlplane.EtcdStatus, []controlplane.Member, error) {
	ctx, cancel := context.WithTimeout(ctx, etcdPatience)
	defer cancel()

	st, err := client.Status(ctx)
	if err != nil {
		return st, nil, err
	}

	if !st.Learner {
		members, err := client.Members(ctx, false)

		return st, members, err
	}

	var members []controlplane.Member

	err = asking(ctx, host, k.voter(st.Cluster), func(ctx context.Context, c *controlplane.EtcdClient) error {
		members, err = c.Members(ctx, false)

		return err
	})

	return st, members, err
}

// voter is the address of a running member of a cluster, the machine's own where no other is known.
func (k *realKubernetes) voter(id uint64) netip.Addr {
	m := k.m

	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	if e := m.cluster.etcds[id]; e != nil {
		for _, o := range e.running {
			if o != m && o.config != nil {
				return o.etcdAddress()
			}
		}
	}

	return m.etcdAddress()
}

// promote asks the voters to make a learner one of them; they refuse until it has caught up.
func promote(ctx context.Context, host controlplane.Host, learner uint64, members []controlplane.Member) {
	ctx, cancel := context.WithTimeout(ctx, etcdPatience)
	defer cancel()

	for _, voter := range members {
		if voter.Learner {
			continue
		}

		client, err := host.EtcdClient(voter.Address)
		if err != nil {
			continue
		}

		err = client.Promote(ctx, learner)
		client.Close()

		if err == nil {
			return
		}
	}
}

// sawEtcd takes over what the member has answered, and says whether it has no place in its cluster any more.
func (k *realKubernetes) sawEtcd(st controlplane.EtcdStatus, members []controlplane.Member, err error) (gone bool) {
	m := k.m

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
	if m.cluster == nil || st.Cluster == 0 {
		return false
	}

	if m.disk.Etcd.ClusterID != st.Cluster || m.disk.Etcd.MemberID != st.Member || m.disk.Etcd.Initial != "" {
		m.disk.Etcd = &etcdData{ClusterID: st.Cluster, MemberID: st.Member}
		m.save()
	}

	e := m.cluster.etcds[st.Cluster]
	if e == nil {
		e = &etcd{ms: m.ms, id: st.Cluster, real: true, nodes: map[string]*kubeNode{}, objects: map[string]*kubeObject{}}
		m.cluster.etcds[e.id] = e
	}

	known := make([]etcdMember, 0, len(members))
	for _, one := range members {
		known = append(known, etcdMember{ID: one.ID, Name: one.Name, Address: one.Address, Learner: one.Learner})
	}

	slices.SortFunc(known, func(a, b etcdMember) int { return a.Address.Compare(b.Address) })

	changed := m.etcd != e || !slices.Equal(known, e.members) || e.leader != st.Leader
	e.members, e.leader, e.revision = known, st.Leader, max(e.revision, st.Revision)

	if m.etcd != e {
		m.etcd = e
		e.running = append(e.running, m)
		m.services.Set("etcd", services.Running, "Health check successful")
	}

	if changed {
		m.changedEtcd(e)
	}

	return false
}
