package datacentre

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/semaphore"
)

// How long PVE's workers wait for a lock: lockTimeout, or quickLockTimeout when creating a VM, for its configuration
// and the source's.
const (
	lockTimeout      = 10 * time.Second
	quickLockTimeout = time.Second
)

// minLockTimeout is real time: with a fast clock, waiting in turn on a busy machine must not time out.
const minLockTimeout = lockTimeout

const exclusive = 1 << 20 // the weight that excludes all shared holders

// withoutLock releases the state's lock while a function blocks. All other work of calls and workers is done with the
// lock held.
func (d *Datacentre) withoutLock(block func() error) error {
	d.unlockWrite()
	defer d.mu.Lock()

	return block()
}

// lockFor returns the lock for a key: a lock file of PVE, or the lock that serializes calls to a guest.
func (d *Datacentre) lockFor(key string) *semaphore.Weighted {
	if d.locks[key] == nil {
		d.locks[key] = semaphore.NewWeighted(exclusive)
	}

	return d.locks[key]
}

// acquire takes a lock file of a scope, such as a host. After the modelled timeout it fails with PVE's message.
func (d *Datacentre) acquire(
	ctx context.Context, scope, file string, weight int64, timeout time.Duration,
) (func(), error) {
	timeoutCtx, cancel := context.WithTimeout(ctx, max(d.options.Clock.Real(timeout), minLockTimeout))
	defer cancel()

	lock := d.lockFor(scope + file)

	switch err := d.withoutLock(func() error { return lock.Acquire(timeoutCtx, weight) }); {
	case err == nil:
		return func() { lock.Release(weight) }, nil
	case ctx.Err() != nil:
		return nil, errInterrupted
	default:
		return nil, fmt.Errorf("can't lock file '%s' - got timeout", file)
	}
}

// lockConfig takes a VM's configuration lock: with weight 1 shared, with exclusive alone.
func (d *Datacentre) lockConfig(ctx context.Context, vmid int, weight int64, timeout time.Duration) (func(), error) {
	return d.acquire(ctx, "", fmt.Sprintf("/var/lock/qemu-server/lock-%d.conf", vmid), weight, timeout)
}

// lockStorage takes the lock under which a storage of a host allocates and deletes volumes.
func (d *Datacentre) lockStorage(ctx context.Context, s *Storage) (func(), error) {
	return d.acquire(ctx, s.Host, "/var/lock/pve-manager/pve-storage-"+s.Name, exclusive, lockTimeout)
}

// maxCopyWait is how long a copy waits for other copies.
const maxCopyWait = 1000 * time.Hour

// copyBytes sleeps for as long as copying bytes between the storages takes. A storage copies one thing at a time, which
// takes as long in total as copying all at once.
func (d *Datacentre) copyBytes(ctx context.Context, bytes int64, storages ...*Storage) error {
	var keys []string
	for _, s := range storages {
		keys = append(keys, s.key())
	}

	slices.Sort(keys)

	for _, key := range slices.Compact(keys) {
		unlock, err := d.acquire(ctx, "copy/", key, exclusive, maxCopyWait)
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
