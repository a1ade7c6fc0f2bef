package datacentre

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

// How long workers of PVE wait for a lock: most of them lockTimeout, those that make a VM only quickLockTimeout for its
// configuration and the source's.
const (
	lockTimeout      = 10 * time.Second
	quickLockTimeout = time.Second
)

// shortestLockTimeout is real time: a fast clock must not turn a busy machine into a timeout.
const shortestLockTimeout = time.Second

const exclusive = 1 << 20 // readers at once

var errTimeout = errors.New("got timeout")

// locks are PVE's lock files, of VMs' configurations and of storages, and those that keep calls to one guest apart.
type locks struct {
	mu     sync.Mutex
	files  map[string]*semaphore.Weighted
	guests map[int]*sync.Mutex
}

func newLocks() *locks {
	return &locks{files: map[string]*semaphore.Weighted{}, guests: map[int]*sync.Mutex{}}
}

func (l *locks) guest(vmid int) func() {
	l.mu.Lock()
	m := l.guests[vmid]

	if m == nil {
		m = &sync.Mutex{}
		l.guests[vmid] = m
	}
	l.mu.Unlock()

	m.Lock()

	return m.Unlock
}

func (l *locks) file(key string) *semaphore.Weighted {
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.files[key] == nil {
		l.files[key] = semaphore.NewWeighted(exclusive)
	}

	return l.files[key]
}

// acquire takes a lock file; errTimeout after so long in modelled time.
func (d *Datacentre) acquire(ctx context.Context, key string, weight int64, patience time.Duration) (func(), error) {
	limited, cancel := context.WithTimeout(ctx, max(d.options.Clock.Real(patience), shortestLockTimeout))
	defer cancel()

	file := d.locks.file(key)

	switch err := file.Acquire(limited, weight); {
	case err == nil:
		return func() { file.Release(weight) }, nil
	case ctx.Err() != nil:
		return nil, errInterrupted
	default:
		return nil, errTimeout
	}
}

// lockVM takes a VM's configuration lock.
func (d *Datacentre) lockVM(ctx context.Context, vmid int) (func(), error) {
	return d.lockConfig(ctx, vmid, exclusive, lockTimeout)
}

// lockConfig takes a VM's configuration lock with a weight: 1 shares it with others of that weight, exclusive with
// no one.
func (d *Datacentre) lockConfig(ctx context.Context, vmid int, weight int64, patience time.Duration) (func(), error) {
	unlock, err := d.acquire(ctx, fmt.Sprintf("vm/%d", vmid), weight, patience)
	if errors.Is(err, errTimeout) {
		return nil, fmt.Errorf("can't lock file '/var/lock/qemu-server/lock-%d.conf' - %w", vmid, err)
	}

	return unlock, err
}

// lockStorage takes the lock under which a storage of a host makes and removes volumes.
func (d *Datacentre) lockStorage(ctx context.Context, s *storage) (func(), error) {
	unlock, err := d.acquire(ctx, "storage/"+s.key(), exclusive, lockTimeout)
	if errors.Is(err, errTimeout) {
		return nil, fmt.Errorf("can't lock file '/var/lock/pve-manager/pve-storage-%s' - %w", s.Name, err)
	}

	return unlock, err
}
