package proxmox

import (
	"errors"
	"maps"
	"strconv"
	"sync"

	"talos-proxmox/lab/datacentre"
)

// Count is how often something was called.
type Count struct {
	Requests int `json:"requests"`
	// Errors are answers of 400 and more.
	Errors int `json:"errors"`
}

// Stats counts requests.
type Stats struct {
	mu     sync.Mutex
	total  Count
	routes map[string]Count
	vms    map[int]int
}

// Snapshot is what Stats has counted.
type Snapshot struct {
	Total Count `json:"total"`
	// Routes counts by "METHOD /path/{template}"; calls that PVE does not know are under "unknown".
	Routes map[string]Count `json:"routes"`
	// VMs counts the requests that named a VMID.
	VMs map[int]int `json:"vms"`
}

// NewStats returns counters at zero.
func NewStats() *Stats { return &Stats{routes: map[string]Count{}, vms: map[int]int{}} }

// Snapshot returns a copy of the counters.
func (s *Stats) Snapshot() Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()

	return Snapshot{Total: s.total, Routes: maps.Clone(s.routes), VMs: maps.Clone(s.vms)}
}

// Reset sets the counters to zero.
func (s *Stats) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.total, s.routes, s.vms = Count{}, map[string]Count{}, map[int]int{}
}

// begin counts a request; the returned function counts its end.
func (s *Stats) begin(method string, rt *route, vars map[string]string) func(r *request, err error) {
	key := "unknown"
	if rt != nil {
		key = method + " " + rt.path
	}

	s.mu.Lock()
	s.total.Requests++
	c := s.routes[key]
	c.Requests++
	s.routes[key] = c
	s.mu.Unlock()

	return func(r *request, err error) {
		s.mu.Lock()
		defer s.mu.Unlock()

		// A clone counts for the machine it makes.
		for _, v := range []string{r.params.get("newid"), vars["vmid"], r.params.get("vmid")} {
			if id, err := strconv.Atoi(v); err == nil {
				s.vms[id]++

				break
			}
		}

		var e *datacentre.Error
		if err != nil && (!errors.As(err, &e) || e.Status >= 400) {
			s.total.Errors++
			c := s.routes[key]
			c.Errors++
			s.routes[key] = c
		}
	}
}
