// Package datacentre models a Proxmox VE data centre: hosts, storages, volumes, virtual machines and their tasks. Its
// only I/O is its state file, files in the hosts' root folders and an injected fetcher. The servers (REST, SSH) are
// built on it.
package datacentre

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

// Options configures a data centre.
type Options struct {
	// Path is the state file; empty keeps the state in memory.
	Path string
	// Hosts are the Proxmox hosts, at least one. Every Open takes the hardware from here, volumes and machines from the
	// state file.
	Hosts []HostOptions
	// Release is Proxmox' major release: PVE8, or PVE9, the default.
	Release int
	// Cluster is the cluster's name; empty for a standalone host.
	Cluster   string
	Clock     Clock
	Durations Durations
	// Fetch downloads a URL for downloads and imports. Without it, every download fails.
	Fetch func(ctx context.Context, url string) ([]byte, error)
	// Network is the subnet with DHCP.
	Network Network
	// SaveDelay is how long changes are collected before the state file is written; 200 ms by default.
	SaveDelay time.Duration
}

// Datacentre is the model. All methods are safe for concurrent use.
type Datacentre struct {
	options Options
	hosts   []*HostOptions

	// mu guards the state: see lockRead and lockWrite. dirty is signalled when there are changes to save.
	mu    sync.Mutex
	dirty chan struct{}
	state state
	locks map[string]*semaphore.Weighted
	// ctx ends all workers; Close cancels it.
	ctx         context.Context
	cancel      context.CancelFunc
	workers     sync.WaitGroup
	taskCancels map[string]context.CancelFunc
	taskDone    map[string]chan struct{}
	guests      Guests
	system      HostSystem
	onPower     map[string][]func(on bool)
	managing    map[int]bool // VMs on which the HA manager works
	replicating bool         // the scheduler of replication jobs works
	// clusterFileMu is held while a file of the cluster file system is changed.
	clusterFileMu sync.Mutex
	// clusterLocks are the locks of the cluster file system, with the time at which each was taken.
	clusterLocks map[string]time.Time
	// showMu is held while the operating system shows a host.
	showMu sync.Mutex
}

// Open creates a data centre, or opens the one saved at Options.Path. Tasks that ran when its process died have the
// exit status "unexpected status".
func Open(o Options) (*Datacentre, error) {
	if len(o.Hosts) == 0 {
		return nil, errors.New("a data centre without hosts: name at least one in Options.Hosts")
	}

	o.Clock = NewClock(o.Clock.speed)
	o.Release = cmp.Or(o.Release, PVE9)
	o.SaveDelay = cmp.Or(o.SaveDelay, 200*time.Millisecond)

	d := &Datacentre{
		options:      o,
		locks:        map[string]*semaphore.Weighted{},
		onPower:      map[string][]func(on bool){},
		managing:     map[int]bool{},
		taskCancels:  map[string]context.CancelFunc{},
		taskDone:     map[string]chan struct{}{},
		clusterLocks: map[string]time.Time{},
		dirty:        make(chan struct{}, 1),
	}
	d.ctx, d.cancel = context.WithCancel(context.Background())

	if err := d.addHosts(o.Hosts); err != nil {
		return nil, err
	}

	s, err := loadState(o.Path)
	if err != nil {
		return nil, err
	}

	d.state = s

	if err := d.save(); err != nil {
		return nil, fmt.Errorf("open data centre: %w", err)
	}

	if o.Path != "" {
		d.workers.Go(d.saveLoop)
	}

	return d, nil
}

// withLock calls a function with the lock held.
func withLock[T any](d *Datacentre, read func() T) T {
	defer d.lockRead()()

	return read()
}

// SetGuests sets what runs inside the VMs, and powers on those that were running when the data centre was saved.
func (d *Datacentre) SetGuests(g Guests) {
	defer d.lockWrite()()

	d.guests = g

	if len(d.state.Records[Replications]) > 0 {
		d.replicate()
	}

	for _, vm := range d.sortedVMs() {
		if hw := vm.Hardware; vm.Running && hw != nil {
			d.withGuest(vm.ID, func(g Guests) { g.PowerOn(*hw) })
		}

		d.manage(vm.ID)
	}
}

// Close interrupts running tasks, which roll back, and saves the state. Running machines are running again after the
// next Open.
func (d *Datacentre) Close() error {
	d.cancel()
	d.workers.Wait()

	return d.save()
}

// Clock returns the clock of modelled time.
func (d *Datacentre) Clock() Clock { return d.options.Clock }

// Durations returns how long operations take.
func (d *Datacentre) Durations() Durations { return d.options.Durations }

// ClusterName returns the cluster's name, or "" for a standalone host.
func (d *Datacentre) ClusterName() string { return d.options.Cluster }

// sleep waits for a modelled duration. It fails when the data centre closes or the task is interrupted.
func (d *Datacentre) sleep(ctx context.Context, t time.Duration) error {
	if fault, ok := ctx.Value(faultKey{}).(error); ok {
		return fault
	}

	if err := d.withoutLock(func() error { return d.options.Clock.Sleep(ctx, t) }); err != nil {
		return errInterrupted
	}

	return nil
}
