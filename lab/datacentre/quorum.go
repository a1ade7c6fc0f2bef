package datacentre

import (
	"context"
	"fmt"
	"time"
)

// Votes are corosync's: each host has one, and beside an even number of hosts a QDevice has another, as Proxmox
// recommends.
type Votes struct {
	// Expected are those of the whole cluster, Total those that are there, Needed those of a quorum.
	Expected, Total, Needed int
	QDevice                 bool
}

// Votes returns the cluster's votes, none for a host that stands alone.
func (d *Datacentre) Votes() Votes { return locked(d, d.votes) }

// votes is called with the lock held.
func (d *Datacentre) votes() Votes {
	if d.options.Cluster == "" {
		return Votes{}
	}

	v := Votes{Expected: len(d.hosts), QDevice: len(d.hosts)%2 == 0}

	for _, h := range d.hosts {
		if d.online(h.Name) {
			v.Total++
		}
	}

	if v.QDevice {
		v.Expected++
		v.Total++
	}

	v.Needed = v.Expected/2 + 1
	if d.anyFault(func(f *Fault) bool { return f.NoQuorum }) {
		v.Total = min(v.Total, v.Needed-1)
	}

	return v
}

// online is called with the lock held.
func (d *Datacentre) online(host string) bool {
	unreachable := d.anyFault(func(f *Fault) bool { return f.Offline && f.Host == host })

	return !unreachable && d.hostState(host).DownUntil.IsZero()
}

// Quorate says whether the cluster has a majority.
func (d *Datacentre) Quorate() bool { return locked(d, d.quorate) }

// quorate is called with the lock held.
func (d *Datacentre) quorate() bool {
	v := d.votes()

	return v.Total >= v.Needed
}

// needQuorum is the check with which PVE begins what makes, starts and moves guests; called with the lock held.
func (d *Datacentre) needQuorum() error {
	if d.quorate() {
		return nil
	}

	return Refuse("cluster not ready - no quorum?")
}

// writable is what a write to a file below /etc/pve, which is read-only without quorum, answers.
func (d *Datacentre) writable(file string) error {
	if d.quorate() {
		return nil
	}

	return Refuse("unable to open file '/etc/pve/%s.tmp.%d' - Permission denied", file, d.state.NextPID)
}

// commit is what a change of a VM's configuration file takes: its time, and a quorum.
func (d *Datacentre) commit(ctx context.Context, hostName string, vmid int, takes time.Duration) error {
	if err := d.sleep(ctx, takes); err != nil {
		return err
	}

	return d.writable(configFile(hostName, vmid))
}

// LockClusterFile takes the lock under which a file of the whole cluster, such as "user.cfg", is changed.
func (d *Datacentre) LockClusterFile(file string) (unlock func(), err error) {
	if !d.Quorate() {
		return nil, Refuse("cfs-lock 'file-%s' error: no quorum!", file)
	}

	d.clusterFiles.Lock()

	return d.clusterFiles.Unlock, nil
}

func configFile(hostName string, vmid int) string {
	return fmt.Sprintf("nodes/%s/qemu-server/%d.conf", hostName, vmid)
}

// clusterLockExpires is how long a lock of the cluster file system is kept for a holder that is gone.
const clusterLockExpires = 2 * time.Minute

// LockCluster takes a lock of the cluster file system, a folder below /etc/pve/priv/lock; refused is why not, in the
// system's words.
func (d *Datacentre) LockCluster(name string) (refused string) {
	defer d.changing()()

	if !d.quorate() {
		return "Permission denied"
	}

	if _, held := d.clusterLocks[name]; held {
		return "File exists"
	}

	d.clusterLocks[name] = time.Now()

	return ""
}

// UnlockCluster gives a lock back.
func (d *Datacentre) UnlockCluster(name string) {
	defer d.changing()()

	delete(d.clusterLocks, name)
}

// RequestUnlock releases a lock that is old enough; anybody may ask for that.
func (d *Datacentre) RequestUnlock(name string) {
	defer d.changing()()

	taken, held := d.clusterLocks[name]
	if held && time.Duration(float64(time.Since(taken))*d.options.Clock.Speed()) > clusterLockExpires {
		delete(d.clusterLocks, name)
	}
}
