package machine

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"proxmox-talos/lab/machine/controlplane"
	"proxmox-talos/lab/machine/services"
)

const (
	// etcdPoll is how often a member that comes up is asked, etcdLook how often one that runs.
	etcdPoll = 200 * time.Millisecond
	etcdLook = time.Second
	// etcdPatience bounds one question to a member.
	etcdPatience = 5 * time.Second
)

// bootstrap implements kubernetes.
func (k *realKubernetes) bootstrap() {
	m := k.m
	m.disk.Etcd = &etcdData{Initial: controlplane.Initial(m.hostname, m.etcdAddress()), New: true}
	m.save()
	m.logf("[talos] etcd: bootstrapping a cluster")
	m.cluster.changed.fire()
}

// recovery is what a bootstrap asks for that recovers from a snapshot. It is in memory only: a reboot loses it.
type recovery struct {
	skipHash bool
	boot     string
}

// recovers is the recovery that somebody has asked for since the machine booted; the caller holds the machines' lock.
func (k *realKubernetes) recovers() *recovery {
	if k.recovery == nil || k.recovery.boot != k.m.bootID {
		return nil
	}

	return k.recovery
}

// awaitSnapshot implements kubernetes.
func (k *realKubernetes) awaitSnapshot() (string, error) {
	host, err := k.host()

	return host.SnapshotFile(), err
}

// recoverEtcd implements kubernetes.
func (k *realKubernetes) recoverEtcd(skipHash bool) error {
	k.recovery = &recovery{skipHash, k.m.bootID}
	k.m.cluster.changed.fire()

	return nil
}

// restore makes the member's data of the uploaded snapshot.
func (k *realKubernetes) restore(ctx context.Context) error {
	m := k.m

	m.ms.mu.Lock()
	asked := k.recovers()
	k.recovery = nil
	m.ms.mu.Unlock()

	if asked == nil {
		return nil
	}

	host, err := k.host()
	if err == nil {
		err = host.RestoreEtcd(ctx, asked.skipHash)
	}

	if err != nil {
		return fmt.Errorf("Failed to run pre stage: %w", err) //nolint:staticcheck // Talos' own words
	}

	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	// The recovered cluster has the first one's id and older data than is known of that.
	for id, e := range m.cluster.etcds {
		if len(e.running) == 0 {
			delete(m.cluster.etcds, id)
		}
	}

	m.logf("[talos] etcd: recovered from the snapshot")
	k.bootstrap()

	return nil
}

// runEtcd implements kubernetes.
func (k *realKubernetes) runEtcd(ctx context.Context) {
	m := k.m

	if !m.awaitEtcdAddress(ctx) {
		return
	}

	for ctx.Err() == nil {
		m.setEtcd(services.Preparing, "Running pre state")

		if !k.awaitMember(ctx) {
			return
		}

		// A member that could not be recovered waits for another bootstrap.
		if err := k.restore(ctx); err != nil {
			m.setEtcd(services.Failed, err.Error())
			m.cluster.await(ctx, func() bool { return k.recovers() != nil || m.disk.Etcd != nil })

			continue
		}

		if err := k.serveEtcd(ctx); err != nil {
			m.setEtcd(services.Failed, err.Error())
		}

		// A member that has left comes back when its service is started again, a removed one never.
		m.cluster.await(ctx, func() bool { return m.disk.Etcd == nil && !m.services.Stopped("etcd") })
	}
}

// awaitMember waits until the machine has a member: data of one, a bootstrap, or a cluster that it has joined.
func (k *realKubernetes) awaitMember(ctx context.Context) bool {
	m := k.m

	for {
		var peer *machine

		if !m.cluster.await(ctx, func() bool {
			// A member whose data is lost joins again, as on Talos.
			if m.disk.Etcd != nil && m.disk.Etcd.Initial == "" && !k.hasEtcdData() {
				m.disk.Etcd = nil
			}

			// A lab that was killed may not have written what it knew of its member, but the member has data.
			if m.disk.Etcd == nil && k.hasEtcdData() {
				m.disk.Etcd = &etcdData{}
			}

			if m.disk.Etcd == nil && k.recovers() == nil {
				peer = m.joinable()
			}

			return m.disk.Etcd != nil || k.recovers() != nil || peer != nil
		}) {
			return false
		}

		if peer == nil {
			return true
		}

		if err := k.join(ctx, peer); err == nil {
			return true
		}

		// Right after a change of its members etcd refuses another one for some seconds.
		select {
		case <-ctx.Done():
			return false
		case <-time.After(etcdLook):
		}
	}
}

// join adds the machine to the cluster of a peer, as a learner.
func (k *realKubernetes) join(ctx context.Context, peer *machine) error {
	m := k.m

	host, err := k.host()
	if err != nil {
		return err
	}

	m.ms.mu.Lock()
	if peer.config == nil {
		m.ms.mu.Unlock()

		return errNoEtcd
	}

	address := peer.etcdAddress()
	m.ms.mu.Unlock()

	client, err := host.EtcdClient(address)
	if err != nil {
		return err
	}
	defer client.Close()

	ctx, cancel := context.WithTimeout(ctx, etcdPatience)
	defer cancel()

	id, initial, err := client.Join(ctx, host.Name, host.Etcd)
	if err != nil {
		return err
	}

	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	m.disk.Etcd = &etcdData{MemberID: id, Initial: initial}
	m.save()
	m.logf("[talos] etcd: joining as learner %s", formatMember(id))

	return nil
}

// serveEtcd runs the member until it leaves its cluster, is removed from it, or the machine stops.
func (k *realKubernetes) serveEtcd(ctx context.Context) error {
	m := k.m

	host, err := k.host()
	if err != nil {
		return err
	}

	m.ms.mu.Lock()
	data := m.disk.Etcd
	m.ms.mu.Unlock()

	if data == nil { // left meanwhile
		return nil
	}

	part, err := host.EtcdPart(data.Initial, data.New)
	if err != nil {
		return err
	}

	client, err := host.EtcdClient(host.Etcd)
	if err != nil {
		return err
	}
	defer client.Close()

	m.setEtcd(services.Preparing, "Starting etcd member")

	run, stop := context.WithCancel(ctx)

	var process sync.WaitGroup

	process.Go(func() { host.Run(run, part, k.state(part.Name)) })
	k.followEtcd(ctx, host, client)
	stop()
	process.Wait()

	m.ms.mu.Lock()
	left := m.disk.Etcd == nil
	m.stopEtcd()
	m.ms.mu.Unlock()

	if left {
		return os.RemoveAll(filepath.Join(host.Dir, "etcd"))
	}

	return nil
}

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
