package machine

import (
	"context"
	"time"
)

// signal wakes everyone who waits for a change. Both methods are called with the machines' lock held.
type signal struct{ ch chan struct{} }

func (s *signal) wait() <-chan struct{} {
	if s.ch == nil {
		s.ch = make(chan struct{})
	}

	return s.ch
}

func (s *signal) fire() {
	if s.ch != nil {
		close(s.ch)
		s.ch = nil
	}
}

// await blocks until the condition, which is asked with the lock held whenever the cluster changes, is true; false when
// the context ended first. The condition may act on what it finds, as nothing else happens in between.
func (c *cluster) await(ctx context.Context, condition func() bool) bool {
	for {
		c.ms.mu.Lock()
		ok := ctx.Err() == nil && condition()
		changed := c.changed.wait()
		c.ms.mu.Unlock()

		if ok {
			return true
		}

		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// sleep waits for the modelled time; false when the machine stopped meanwhile.
func (m *machine) sleep(ctx context.Context, d time.Duration) bool {
	return m.ms.world.Clock().Sleep(ctx, d) == nil
}

// fireLocked is fire for callers without the lock.
func (s *signal) fireLocked(ms *Machines) {
	ms.mu.Lock()
	defer ms.mu.Unlock()

	s.fire()
}
