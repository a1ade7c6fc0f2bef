package machine

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"time"

	"talos-proxmox/lab/machine/services"
)

const (
	// etcdPoll is how often a member that comes up is asked, etcdLook how often one that runs.
	etcdPoll = 200 * time.Millisecond
	etcdLook = time.Second
	// etcdPatience bounds one question to a member.
	etcdPatience = 5 * time.Second
)

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
