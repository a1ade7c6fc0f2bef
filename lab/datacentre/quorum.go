package datacentre

import "fmt"

// Quorate says whether the cluster has a majority. The lab's cluster has a QDevice: a single host that is away does not cost it the quorum, only the fault does.
func (d *Datacentre) Quorate() bool {
	d.mu.Lock()
	defer d.mu.Unlock()

	return d.quorate()
}

// quorate is called with the lock held.
func (d *Datacentre) quorate() bool { return !d.anyFault(func(f *Fault) bool { return f.NoQuorum }) }

// needQuorum is the check with which PVE begins what makes, starts and moves guests; called with the lock held.
func (d *Datacentre) needQuorum() error {
	if d.quorate() {
		return nil
	}

	return refuse("cluster not ready - no quorum?")
}

// writable is what a write to a file below /etc/pve, which is read-only without quorum, answers.
func (d *Datacentre) writable(file string) error {
	if d.Quorate() {
		return nil
	}

	d.mu.Lock()
	defer d.mu.Unlock()

	return refuse("unable to open file '/etc/pve/%s.tmp.%d' - Permission denied", file, d.state.NextPID)
}

// NeedClusterLock is what a change of a file of the whole cluster, such as "user.cfg", begins with.
func (d *Datacentre) NeedClusterLock(file string) error {
	if d.Quorate() {
		return nil
	}

	return refuse("cfs-lock 'file-%s' error: no quorum!", file)
}

func configFile(hostName string, vmid int) string {
	return fmt.Sprintf("nodes/%s/qemu-server/%d.conf", hostName, vmid)
}
