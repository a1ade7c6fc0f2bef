package datacentre

import (
	"context"
	"fmt"
	"time"
)

// Votes are corosync's votes: each host has one. With an even number of hosts, a QDevice has another, as Proxmox
// recommends.
type Votes struct {
	// Expected are the votes of the whole cluster, Total those present, Needed those of a quorum.
	Expected, Total, Needed int
	QDevice                 bool
}

// Votes returns the cluster's votes, or zeros for a standalone host.
func (d *Datacentre) Votes() Votes { return withLock(d, d.votes) }

// votes requires the lock.
func (d *Datacentre) votes() Votes {
	if d.options.Cluster == "" {
		return Votes{}
	}

	v := Votes{Expected: len(d.hosts), QDevice: len(d.hosts)%2 == 0}

	for _, h := range d.hosts {
		if d.isOnline(h.Name) {
			v.Total++
		}
	}

	if v.QDevice {
		v.Expected++
		v.Total++
	}

	v.Needed = v.Expected/2 + 1
	if d.hasFault(func(f *Fault) bool { return f.NoQuorum }) {
		v.Total = min(v.Total, v.Needed-1)
	}

	return v
}

// isOnline requires the lock.
func (d *Datacentre) isOnline(host string) bool {
	unreachable := d.hasFault(func(f *Fault) bool { return (f.Offline || f.NoPower) && f.Host == host })

	return !unreachable && d.hostState(host).DownUntil.IsZero()
}

// Quorate reports whether the cluster has quorum.
func (d *Datacentre) Quorate() bool { return withLock(d, d.isQuorate) }

// isQuorate requires the lock.
func (d *Datacentre) isQuorate() bool {
	v := d.votes()

	return v.Total >= v.Needed
}

// checkQuorum is PVE's check before it creates, starts or moves guests; it requires the lock.
func (d *Datacentre) checkQuorum() error {
	if d.isQuorate() {
		return nil
	}

	return Refuse("cluster not ready - no quorum?")
}

// checkWritable returns the error of writing a file in /etc/pve, which is read-only without quorum.
func (d *Datacentre) checkWritable(file string) error {
	if d.isQuorate() {
		return nil
	}

	return Refuse("unable to open file '/etc/pve/%s.tmp.%d' - Permission denied", file, d.state.NextPID)
}

// commitConfig takes the time of writing a VM's configuration file, and fails without quorum.
func (d *Datacentre) commitConfig(ctx context.Context, hostName string, vmid int, duration time.Duration) error {
	if err := d.sleep(ctx, duration); err != nil {
		return err
	}

	return d.checkWritable(configFile(hostName, vmid))
}

// LockClusterFile takes the lock for changing a file of the cluster file system, such as "user.cfg".
func (d *Datacentre) LockClusterFile(file string) (unlock func(), err error) {
	if !d.Quorate() {
		return nil, Refuse("cfs-lock 'file-%s' error: no quorum!", file)
	}

	d.clusterFileMu.Lock()

	return d.clusterFileMu.Unlock, nil
}

func configFile(hostName string, vmid int) string {
	return fmt.Sprintf("nodes/%s/qemu-server/%d.conf", hostName, vmid)
}

// clusterLockExpires is the age at which a lock of the cluster file system can be taken from its holder.
const clusterLockExpires = 2 * time.Minute

// LockCluster takes a lock of the cluster file system, a folder in /etc/pve/priv/lock, or returns the system's error
// text.
func (d *Datacentre) LockCluster(name string) (refused string) {
	defer d.lockWrite()()

	if !d.isQuorate() {
		return "Permission denied"
	}

	if _, held := d.clusterLocks[name]; held {
		return "File exists"
	}

	d.clusterLocks[name] = time.Now()

	return ""
}

// UnlockCluster releases a lock.
func (d *Datacentre) UnlockCluster(name string) {
	defer d.lockWrite()()

	delete(d.clusterLocks, name)
}

// RequestUnlock releases an expired lock; any process may request it.
func (d *Datacentre) RequestUnlock(name string) {
	defer d.lockWrite()()

	taken, held := d.clusterLocks[name]
	if held && time.Duration(float64(time.Since(taken))*d.options.Clock.Speed()) > clusterLockExpires {
		delete(d.clusterLocks, name)
	}
}
