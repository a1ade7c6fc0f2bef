package machine

import (
	"context"
	"time"
)

// signal wakes all waiters when something changes. Its methods are called with the machines' lock held.
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

// await blocks until the condition is true, and returns false if the context ends first. It evaluates the condition
// with the lock held whenever the cluster changes, so the condition may act on what it finds.
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

// sleep waits for modelled time. It returns false if the machine stopped meanwhile.
func (m *machine) sleep(ctx context.Context, d time.Duration) bool {
	return m.ms.world.Clock().Sleep(ctx, d) == nil
}
