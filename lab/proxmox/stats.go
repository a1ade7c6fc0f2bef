package proxmox

import (
	"maps"
	"sync"
)

// Stats counts requests.
type Stats struct {
	mu     sync.Mutex
	routes map[string]int
}

// NewStats returns counters at zero.
func NewStats() *Stats { return &Stats{routes: map[string]int{}} }

// Routes returns the counts by "METHOD /path/{template}"; calls that PVE does not know are under "unknown".
func (s *Stats) Routes() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()

	return maps.Clone(s.routes)
}

// Reset sets the counters to zero.
func (s *Stats) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()

	clear(s.routes)
}

func (s *Stats) count(rt *route) {
	key := "unknown"
	if rt != nil {
		key = rt.method + " " + rt.path
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	s.routes[key]++
}
