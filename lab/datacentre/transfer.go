package datacentre

import (
	"context"
	"sync"
	"time"
)

// transfers are the copies under way. Those on one storage share its throughput equally; one between two storages is as
// fast as the slower of its two parts.
type transfers struct {
	mu     sync.Mutex
	active map[*transfer]bool
	// changed is closed when a copy begins or ends: the others then have another speed.
	changed chan struct{}
}

type transfer struct {
	over []*storage
	// left is in bytes; speed, in bytes a modelled second, is what it had since then.
	left, speed float64
	since       time.Time
}

func newTransfers() *transfers {
	return &transfers{active: map[*transfer]bool{}, changed: make(chan struct{})}
}

// copyBytes lets as much modelled time pass as copying so many bytes from and to the storages takes.
func (d *Datacentre) copyBytes(ctx context.Context, bytes int64, over ...*storage) error {
	if err := d.sleep(ctx, 0); err != nil { // a fault that is due
		return err
	}

	all := d.transfers
	t := &transfer{over: over, left: float64(bytes)}

	all.mu.Lock()
	all.active[t] = true

	d.pace()
	all.mu.Unlock()

	defer func() {
		all.mu.Lock()
		delete(all.active, t)
		d.pace()
		all.mu.Unlock()
	}()

	for {
		all.mu.Lock()
		left, changed := d.settle(t), all.changed
		all.mu.Unlock()

		if left <= 0 {
			return nil
		}

		limited, cancel := context.WithTimeout(ctx, d.options.Clock.Real(left))

		select {
		case <-changed:
		case <-limited.Done():
		}

		cancel()

		if ctx.Err() != nil {
			return errInterrupted
		}
	}
}

// longestWait is after what a copy looks at its progress at the latest.
const longestWait = 1000 * time.Hour

// settle counts what has been copied and returns how long the rest takes; called with the transfers' lock held.
func (d *Datacentre) settle(t *transfer) time.Duration {
	now := time.Now()
	t.left -= t.speed * now.Sub(t.since).Seconds() * d.options.Clock.Speed()
	t.since = now

	if t.left < 1 || t.speed == 0 {
		return 0
	}

	return time.Duration(min(t.left/t.speed, longestWait.Seconds()) * float64(time.Second))
}

// pace gives every copy its speed again; called with the transfers' lock held.
func (d *Datacentre) pace() {
	all := d.transfers
	users := map[string]int{}

	for t := range all.active {
		if !t.since.IsZero() {
			d.settle(t)
		}

		for _, s := range t.storages() {
			users[s.key()]++
		}
	}

	for t := range all.active {
		t.speed, t.since = 0, time.Now()

		for _, s := range t.storages() {
			if part := d.throughput(s) / float64(users[s.key()]); t.speed == 0 || part < t.speed {
				t.speed = part
			}
		}
	}

	close(all.changed)
	all.changed = make(chan struct{})
}

// storages are those the copy goes over, each once.
func (t *transfer) storages() []*storage {
	if len(t.over) == 2 && t.over[0].key() == t.over[1].key() {
		return t.over[:1]
	}

	return t.over
}

// throughput is in bytes a modelled second; 0 means that copies take no time.
func (d *Datacentre) throughput(s *storage) float64 {
	if s.Throughput > 0 {
		return float64(s.Throughput)
	}

	return float64(d.options.Durations.StorageThroughput)
}
