package datacentre

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/semaphore"
)

// How long workers of PVE wait for a lock: most of them lockTimeout, those that make a VM only quickLockTimeout for its
// configuration and the source's.
const (
	lockTimeout      = 10 * time.Second
	quickLockTimeout = time.Second
)

// shortestLockTimeout is real time: a fast clock must not turn a busy machine into a timeout, where many wait in turn.
const shortestLockTimeout = lockTimeout

const exclusive = 1 << 20 // readers at once

// wait lets others in while something waits. All work of the model is done with its lock held: that of calls, which
// take it, and that of workers.
func (d *Datacentre) wait(idle func() error) error {
	d.changed()
	defer d.mu.Lock()

	return idle()
}

// lockFile is one of PVE's lock files, of VMs' configurations and of storages, or what keeps calls to one guest apart.
func (d *Datacentre) lockFile(key string) *semaphore.Weighted {
	if d.locks[key] == nil {
		d.locks[key] = semaphore.NewWeighted(exclusive)
	}

	return d.locks[key]
}

// acquire takes a lock file of a place, such as a host, and refuses in PVE's words after so long in modelled time.
func (d *Datacentre) acquire(
	ctx context.Context, place, file string, weight int64, patience time.Duration,
) (func(), error) {
	limited, cancel := context.WithTimeout(ctx, max(d.options.Clock.Real(patience), shortestLockTimeout))
	defer cancel()

	lock := d.lockFile(place + file)

	switch err := d.wait(func() error { return lock.Acquire(limited, weight) }); {
	case err == nil:
		return func() { lock.Release(weight) }, nil
	case ctx.Err() != nil:
		return nil, errInterrupted
	default:
		return nil, fmt.Errorf("can't lock file '%s' - got timeout", file)
	}
}

// lockConfig takes a VM's configuration lock with a weight: 1 shares it with others of that weight, exclusive with
// no one.
func (d *Datacentre) lockConfig(ctx context.Context, vmid int, weight int64, patience time.Duration) (func(), error) {
	return d.acquire(ctx, "", fmt.Sprintf("/var/lock/qemu-server/lock-%d.conf", vmid), weight, patience)
}

// lockStorage takes the lock under which a storage of a host makes and removes volumes.
func (d *Datacentre) lockStorage(ctx context.Context, s *Storage) (func(), error) {
	return d.acquire(ctx, s.Host, "/var/lock/pve-manager/pve-storage-"+s.Name, exclusive, lockTimeout)
}

// longestWait is for how long a copy waits for others at most.
const longestWait = 1000 * time.Hour

// copyBytes lets as much modelled time pass as copying so many bytes from and to the storages takes. A storage copies
// one thing after the other, which takes as long as all of them at once would.
func (d *Datacentre) copyBytes(ctx context.Context, bytes int64, over ...*Storage) error {
	var keys []string
	for _, s := range over {
		keys = append(keys, s.key())
	}

	slices.Sort(keys)

	for _, key := range slices.Compact(keys) {
		unlock, err := d.acquire(ctx, "copy/", key, exclusive, longestWait)
		if err != nil {
			return err
		}
		defer unlock()
	}

	speed := float64(d.options.Durations.StorageThroughput)
	if speed == 0 {
		return d.sleep(ctx, 0)
	}

	return d.sleep(ctx, time.Duration(float64(bytes)/speed*float64(time.Second)))
}
