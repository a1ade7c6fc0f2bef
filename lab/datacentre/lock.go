package datacentre

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

// lockTimeout is how long a worker of PVE waits for a VM's configuration.
const lockTimeout = 10 * time.Second

// shortestLockTimeout is real time: a fast clock must not turn a busy machine into a timeout.
const shortestLockTimeout = 2 * time.Second

const exclusive = 1 << 20

// locks are the locks of VMs' configuration files, and those that keep calls to one guest apart.
type locks struct {
	mu     sync.Mutex
	files  map[int]*semaphore.Weighted
	guests map[int]*sync.Mutex
}

func newLocks() *locks {
	return &locks{files: map[int]*semaphore.Weighted{}, guests: map[int]*sync.Mutex{}}
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

func (l *locks) file(vmid int) *semaphore.Weighted {
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.files[vmid] == nil {
		l.files[vmid] = semaphore.NewWeighted(exclusive)
	}

	return l.files[vmid]
}

// lockVM takes a VM's configuration lock, shared with other readers where said so.
func (d *Datacentre) lockVM(ctx context.Context, vmid int, shared bool) (func(), error) {
	weight := int64(exclusive)
	if shared {
		weight = 1
	}

	limited, cancel := context.WithTimeout(ctx, max(d.options.Clock.Real(lockTimeout), shortestLockTimeout))
	defer cancel()

	file := d.locks.file(vmid)
	if err := file.Acquire(limited, weight); err != nil {
		if ctx.Err() != nil {
			return nil, errInterrupted
		}

		return nil, fmt.Errorf("can't lock file '/var/lock/qemu-server/lock-%d.conf' - got timeout", vmid)
	}

	return func() { file.Release(weight) }, nil
}
