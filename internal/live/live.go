// Package live shows what runs of a stack, and what a run does to it, again and again: in a terminal or a pipe, and as
// a page of a web server on loopback.
package live

import (
	"context"
	"sync"
	"time"

	"talos-proxmox/internal/operations"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/timeline"
)

// Source is what is shown.
type Source struct {
	Stack string
	// Interval is how long to wait between the end of a collection and the beginning of the next.
	Interval time.Duration
	// Plan is what is planned before the first collection.
	Plan *spec.Plan
	// Collect asks the stack. It is never called twice at the same time.
	Collect func(ctx context.Context) (*spec.Plan, operations.Overview, error)
	// Runs is the log of the stack's last run.
	Runs *timeline.File
}

// Collector holds what was collected last.
type Collector struct {
	Source

	now func() time.Time

	mu     sync.Mutex // guards what follows
	latest Snapshot
}

// Snapshot is what is known at a moment.
type Snapshot struct {
	operations.Overview

	Stack string
	Plan  *spec.Plan
	Now   time.Time
	// Asked is when the overview was collected; zero = not yet.
	Asked time.Time
	// Collecting is since when the next one is being collected; zero = it is not.
	Collecting time.Time
	// Problem is why the last collection failed; the overview is then of an earlier one.
	Problem string
	// Run is the stack's last run; nil = none was logged.
	Run *timeline.Run
	// RunProblem is why the log of runs cannot be read.
	RunProblem string
}

// NewCollector has collected nothing yet.
func NewCollector(s Source) *Collector {
	return &Collector{Source: s, now: time.Now, latest: Snapshot{Stack: s.Stack, Plan: s.Plan}}
}

// Snapshot returns what is known now, and what the run in progress has done by now.
func (c *Collector) Snapshot() Snapshot {
	c.mu.Lock()
	s := c.latest
	c.mu.Unlock()

	s.Now = c.now()

	run, err := c.Runs.Run()
	if s.Run = run; err != nil {
		s.RunProblem = err.Error()
	}

	return s
}

// Once collects once, for as long as it takes.
func (c *Collector) Once(ctx context.Context) {
	c.update(func(s *Snapshot) { s.Collecting = c.now() })

	plan, overview, err := c.Collect(ctx)

	c.update(func(s *Snapshot) {
		s.Collecting, s.Problem = time.Time{}, ""

		if err != nil {
			s.Problem = err.Error()
		} else {
			s.Plan, s.Overview, s.Asked = plan, overview, c.now()
		}
	})
}

func (c *Collector) update(change func(*Snapshot)) {
	c.mu.Lock()
	defer c.mu.Unlock()

	change(&c.latest)
}

// Age returns how old the overview is.
func (s Snapshot) Age() time.Duration { return s.Now.Sub(s.Asked).Truncate(time.Second) }
