package engine_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/events"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
)

// stopwatch measures the steps of a run, by the URNs of their resources.
type stopwatch struct {
	began map[string]time.Time
	took  map[string]time.Duration
}

func newStopwatch() *stopwatch {
	return &stopwatch{began: map[string]time.Time{}, took: map[string]time.Duration{}}
}

// record notes a step that begins or ends. The engine's own timestamps are whole seconds.
func (s *stopwatch) record(event events.EngineEvent) {
	if e := event.ResourcePreEvent; e != nil {
		s.began[e.Metadata.URN] = time.Now()
	}

	if e := event.ResOutputsEvent; e != nil {
		s.took[e.Metadata.URN] = time.Since(s.began[e.Metadata.URN])
	}
}

// link is a resource in a chain in which each depends on the previous one.
type link struct {
	urn      string
	total    time.Duration // by it and by all before it
	previous *link
}

func (l *link) String() string {
	var names []string

	for ; l != nil; l = l.previous {
		own := l.total
		if l.previous != nil {
			own -= l.previous.total
		}

		names = append(names, fmt.Sprintf("%s %.1f s", urnKey(l.urn), own.Seconds()))
	}

	slices.Reverse(names)

	return strings.Join(names, " → ")
}

// longestChain returns the chain of dependent resources that took longest: the lower bound of the run's time.
func (w *world) longestChain(stack string, s *stopwatch) *link {
	w.t.Helper()

	longest, ends := &link{}, map[resource.URN]*link{}

	for _, r := range w.deployment(stack).Resources { // sorted by their dependencies
		l := &link{urn: string(r.URN)}

		for _, before := range r.Dependencies {
			if end := ends[before]; end != nil && (l.previous == nil || end.total > l.previous.total) {
				l.previous = end
			}
		}

		if l.previous != nil {
			l.total = l.previous.total
		}

		if r.Custom { // a component takes as long as its children
			l.total += s.took[string(r.URN)]
		}

		ends[r.URN] = l
		if l.total > longest.total {
			longest = l
		}
	}

	return longest
}
