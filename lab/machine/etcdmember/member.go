// Package etcdmember looks after a machine's member of a real etcd cluster as Talos does: it joins as a learner,
// becomes a voter, leaves with its data, and recovers a cluster from a snapshot.
package etcdmember

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"talos-proxmox/lab/machine/controlplane"
	"talos-proxmox/lab/machine/services"
)

const (
	// startPollInterval is how often a member that comes up is asked, look how often one that runs.
	startPollInterval = 200 * time.Millisecond
	pollInterval      = time.Second
	// requestTimeout bounds one question to a member.
	requestTimeout = 5 * time.Second
)

// Machine is what a member needs of the machine that it runs on.
type Machine interface {
	// Host describes the machine to what runs on it; an error when it goes down.
	Host() (controlplane.Host, error)
	// ReportEtcd tells the state of etcd's service, Process that its process runs, or why it ended.
	ReportEtcd(state, message string)
	ProcessChanged(err error)
	// AwaitMember waits until the machine has a member, or shall recover one, or may join a cluster: then the address of
	// one of its members is valid. False when the context ended first.
	AwaitMember(ctx context.Context) (peer netip.Addr, found bool)
	// AwaitBootstrap waits until a cluster is bootstrapped on the machine or a recovery is requested.
	AwaitBootstrap(ctx context.Context)
	// AwaitStart waits until the member has left and etcd's service is started again.
	AwaitStart(ctx context.Context)
	// MemberJoined keeps the machine's new learner, and how it finds the others at its first start.
	MemberJoined(id uint64, initial string)
	// InitialCluster is how the member finds the others at its first start, and that it begins a cluster; neither counts once
	// it has data. False when the machine has none any more.
	InitialCluster() (initial string, begins, has bool)
	// Recovery takes the requested recovery of an uploaded snapshot, whose hash may be missing; false where there is none.
	Recovery() (skipHash, asked bool)
	// Recovered begins a cluster with the data that was recovered.
	Recovered()
	// Voter is the address of another member of a cluster that runs, the machine's own where none is known.
	Voter(cluster uint64) netip.Addr
	// ObserveMember takes over what the member has answered, and says whether it has no place in its cluster any more.
	ObserveMember(st *etcdserverpb.StatusResponse, members []controlplane.Member, err error) (gone bool)
	// MemberStopped takes the member down, and says whether the machine has left its cluster.
	MemberStopped() (left bool)
}

// Member is a machine's.
type Member struct{ m Machine }

// New makes the member of a machine.
func New(m Machine) *Member { return &Member{m} }

// Run is etcd's service: it waits for a cluster to begin, to join or to recover, then runs the member, until the
// context ends.
func (r *Member) Run(ctx context.Context) {
	for ctx.Err() == nil {
		r.m.ReportEtcd(services.Preparing, "Running pre state")

		if !r.await(ctx) {
			return
		}

		// A member that could not be recovered waits for another bootstrap.
		if err := r.restore(ctx); err != nil {
			r.m.ReportEtcd(services.Failed, err.Error())
			r.m.AwaitBootstrap(ctx)

			continue
		}

		if err := r.serve(ctx); err != nil {
			r.m.ReportEtcd(services.Failed, err.Error())
		}

		// A member that has left comes back when its service is started again, a removed one never.
		r.m.AwaitStart(ctx)
	}
}

// await waits until the machine has a member: data of one, a bootstrap, or a cluster that it has joined.
func (r *Member) await(ctx context.Context) bool {
	for {
		peer, found := r.m.AwaitMember(ctx)
		if !found || !peer.IsValid() {
			return found
		}

		if err := r.join(ctx, peer); err == nil {
			return true
		}

		// Right after a change of its members etcd refuses another one for some seconds.
		if controlplane.Sleep(ctx, pollInterval); ctx.Err() != nil {
			return false
		}
	}
}

// join adds the machine to the cluster of a peer, as a learner.
func (r *Member) join(ctx context.Context, peer netip.Addr) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()

	host, err := r.m.Host()
	if err != nil {
		return err
	}

	return withClient(ctx, host, peer, func(ctx context.Context, c *controlplane.EtcdClient) error {
		id, initial, err := c.Join(ctx, host.Name, host.Etcd)
		if err == nil {
			r.m.MemberJoined(id, initial)
		}

		return err
	})
}

// serve runs the member until it leaves its cluster, is removed from it, or the machine stops.
func (r *Member) serve(ctx context.Context) error {
	host, err := r.m.Host()
	if err != nil {
		return err
	}

	initial, bootstrap, ok := r.m.InitialCluster()
	if !ok { // left meanwhile
		return nil
	}

	part, err := host.EtcdComponent(initial, bootstrap)
	if err != nil {
		return err
	}

	client, err := host.EtcdClient(host.Etcd)
	if err != nil {
		return err
	}
	defer client.Close()

	r.m.ReportEtcd(services.Preparing, "Starting etcd member")

	run, stop := context.WithCancel(ctx)

	var process sync.WaitGroup

	process.Go(func() { host.Run(run, part, r.m.ProcessChanged) })
	r.watch(ctx, host, client)
	stop()
	process.Wait()

	if r.m.MemberStopped() {
		return os.RemoveAll(filepath.Join(host.Dir, "etcd"))
	}

	return nil
}

// restore makes the member's data from the uploaded snapshot where that was requested.
func (r *Member) restore(ctx context.Context) error {
	skipHash, requested := r.m.Recovery()
	if !requested {
		return nil
	}

	host, err := r.m.Host()
	if err == nil {
		err = host.RestoreEtcd(ctx, skipHash)
	}

	if err != nil {
		return fmt.Errorf("Failed to run pre stage: %w", err) //nolint:staticcheck // Talos' own words
	}

	r.m.Recovered()

	return nil
}
