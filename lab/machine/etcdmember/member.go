// Package etcdmember runs a machine's member of a real etcd cluster as Talos does: it joins as a learner, is promoted,
// leaves with its data, and recovers a cluster from a snapshot.
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
	// startPollInterval is the time between two status requests to a starting member, pollInterval to a running one.
	startPollInterval = 200 * time.Millisecond
	pollInterval      = time.Second
	// requestTimeout bounds one request to a member.
	requestTimeout = 5 * time.Second
)

// Machine is what a member needs from its machine.
type Machine interface {
	// Host describes the machine to its programs; it fails if the machine is going down.
	Host() (controlplane.Host, error)
	// ReportEtcd sets the state of the etcd service, ProcessChanged records that its process runs or why it ended.
	ReportEtcd(state, message string)
	ProcessChanged(err error)
	// AwaitMember waits until the machine has a member or a requested recovery, or can join a cluster, in which case peer
	// is the address of one of its members. It returns false if the context ends first.
	AwaitMember(ctx context.Context) (peer netip.Addr, found bool)
	// AwaitBootstrap waits for a bootstrap on the machine or the request of a recovery.
	AwaitBootstrap(ctx context.Context)
	// AwaitStart waits until the etcd service is started again after the member has left.
	AwaitStart(ctx context.Context)
	// MemberJoined stores the machine's new learner, and the members for its first start.
	MemberJoined(id uint64, initial string)
	// InitialCluster returns the members at the member's first start, and whether it bootstraps the cluster; etcd ignores
	// both once it has data. It returns false if the machine no longer has a member.
	InitialCluster() (initial string, bootstrap, ok bool)
	// Recovery returns whether a recovery from an uploaded snapshot was requested, and whether to skip its hash check. It
	// clears the request.
	Recovery() (skipHash, requested bool)
	// Recovered bootstraps a cluster with the recovered data.
	Recovered()
	// Voter returns the address of another running member of a cluster, or the machine's own if none is known.
	Voter(cluster uint64) netip.Addr
	// ObserveMember stores the member's status, and reports whether it left or was removed from its cluster.
	ObserveMember(st *etcdserverpb.StatusResponse, members []controlplane.Member, err error) (gone bool)
	// MemberStopped records that the member stopped, and reports whether the machine has left its cluster.
	MemberStopped() (left bool)
}

// Member is a machine's etcd member.
type Member struct{ m Machine }

// New returns the member of a machine.
func New(m Machine) *Member { return &Member{m} }

// Run runs the etcd service: it waits for a bootstrap, a cluster to join or a recovery, then runs the member, until the
// context ends.
func (r *Member) Run(ctx context.Context) {
	for ctx.Err() == nil {
		r.m.ReportEtcd(services.Preparing, "Running pre state")

		if !r.await(ctx) {
			return
		}

		// After a failed recovery it waits for another bootstrap.
		if err := r.restore(ctx); err != nil {
			r.m.ReportEtcd(services.Failed, err.Error())
			r.m.AwaitBootstrap(ctx)

			continue
		}

		if err := r.serve(ctx); err != nil {
			r.m.ReportEtcd(services.Failed, err.Error())
		}

		// A member that left joins again when its service is started; a removed one does not.
		r.m.AwaitStart(ctx)
	}
}

// await waits until the machine has a member: from its data, a bootstrap, or a cluster that it has joined.
func (r *Member) await(ctx context.Context) bool {
	for {
		peer, found := r.m.AwaitMember(ctx)
		if !found || !peer.IsValid() {
			return found
		}

		if err := r.join(ctx, peer); err == nil {
			return true
		}

		// For some seconds after a change of members, etcd refuses another change.
		if controlplane.Sleep(ctx, pollInterval); ctx.Err() != nil {
			return false
		}
	}
}

// join joins the cluster of a peer as a learner.
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

// serve runs the member until it leaves or is removed from its cluster, or the machine stops.
func (r *Member) serve(ctx context.Context) error {
	host, err := r.m.Host()
	if err != nil {
		return err
	}

	initial, bootstrap, ok := r.m.InitialCluster()
	if !ok { // left meanwhile
		return nil
	}

	component, err := host.EtcdComponent(initial, bootstrap)
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

	process.Go(func() { host.Run(run, component, r.m.ProcessChanged) })
	r.watch(ctx, host, client)
	stop()
	process.Wait()

	if r.m.MemberStopped() {
		return os.RemoveAll(filepath.Join(host.Dir, "etcd"))
	}

	return nil
}

// restore restores the member's data from the uploaded snapshot if a recovery was requested.
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
		return fmt.Errorf("Failed to run pre stage: %w", err) //nolint:staticcheck // as Talos words it
	}

	r.m.Recovered()

	return nil
}
