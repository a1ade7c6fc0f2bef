// Package datacentre is the lab's model of a Proxmox VE data centre: hosts, storages, volumes, virtual machines and
// their tasks. It does no I/O of its own but its state file, files in the hosts' root folders and an injected fetcher;
// the servers (REST, SSH) stand over it.
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

// Options says what a data centre is made of.
type Options struct {
	// Path is the state file; empty keeps everything in memory.
	Path string
	// Hosts are the Proxmox hosts, at least one. Hardware is taken from here at every Open, volumes and machines from the
	// state file.
	Hosts []HostOptions
	// Release is Proxmox' own: PVE8, or PVE9, the default.
	Release int
	// Cluster is the cluster's name; empty for a host that stands alone.
	Cluster   string
	Clock     Clock
	Durations Durations
	// Fetch gets a URL for downloads and imports. Without it every download fails.
	Fetch func(ctx context.Context, url string) ([]byte, error)
	// Network is the subnet with DHCP.
	Network Network
	// SaveDelay is how long changes are gathered before the state file is written; 200 ms by default.
	SaveDelay time.Duration
}

// Datacentre is the model. All methods are safe for concurrent use.
type Datacentre struct {
	options Options
	hosts   []*HostOptions

	// mu is the lock of the state: see reading and changing. dirty holds something while there may be changes to save.
	mu    sync.Mutex
	dirty chan struct{}
	state state
	locks map[string]*semaphore.Weighted
	// running is closed down by Close: it ends every worker.
	running context.Context
	halt    context.CancelFunc
	workers sync.WaitGroup
	cancels map[string]context.CancelFunc
	ended   map[string]chan struct{}
	guests  Guests
	system  HostSystem
	onPower map[string][]func(on bool)
	// clusterFiles is held while a file of the whole cluster is changed.
	clusterFiles sync.Mutex
	// clusterLocks are the locks of the cluster file system, and since when they are held.
	clusterLocks map[string]time.Time
	// showing is held while the system shows a host.
	showing sync.Mutex
}

// Open makes a data centre, or opens the one saved at Options.Path. Tasks that ran when its process died have ended
// with "unexpected status".
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
		cancels:      map[string]context.CancelFunc{},
		ended:        map[string]chan struct{}{},
		clusterLocks: map[string]time.Time{},
		dirty:        make(chan struct{}, 1),
	}
	d.running, d.halt = context.WithCancel(context.Background())

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
		d.workers.Add(1)

		go d.keepSaved()
	}

	return d, nil
}

// locked reads something with the lock held.
func locked[T any](d *Datacentre, ask func() T) T {
	defer d.reading()()

	return ask()
}

// SetGuests says what runs inside the VMs, and switches on those that were running when the data centre was saved.
func (d *Datacentre) SetGuests(g Guests) {
	defer d.changing()()

	d.guests = g

	for _, vm := range d.sortedVMs() {
		if hw := vm.Hardware; vm.Running && hw != nil {
			d.withGuest(vm.ID, func(g Guests) { g.PowerOn(*hw) })
		}
	}
}

// Close interrupts running tasks, which roll back what they had half done, and saves. Running machines stay running for
// the next Open.
func (d *Datacentre) Close() error {
	d.halt()
	d.workers.Wait()

	return d.save()
}

// Clock returns the clock that modelled time follows.
func (d *Datacentre) Clock() Clock { return d.options.Clock }

// Durations returns the table of how long things take.
func (d *Datacentre) Durations() Durations { return d.options.Durations }

// ClusterName returns the cluster's name, empty for a host that stands alone.
func (d *Datacentre) ClusterName() string { return d.options.Cluster }

// sleep lets modelled time pass, unless the data centre closes or the task is interrupted.
func (d *Datacentre) sleep(ctx context.Context, t time.Duration) error {
	if fault, ok := ctx.Value(faultKey{}).(error); ok {
		return fault
	}

	if err := d.wait(func() error { return d.options.Clock.Sleep(ctx, t) }); err != nil {
		return errInterrupted
	}

	return nil
}
