package engine_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/events"
	"github.com/stretchr/testify/require"
)

// stopwatch takes the time of a run's steps, by the URNs of their resources.
type stopwatch struct {
	began map[string]time.Time
	took  map[string]time.Duration
}

func newStopwatch() *stopwatch {
	return &stopwatch{began: map[string]time.Time{}, took: map[string]time.Duration{}}
}

// see notes a step that begins or ends. The engine stamps its events in whole seconds.
func (s *stopwatch) see(event events.EngineEvent) {
	if e := event.ResourcePreEvent; e != nil {
		s.began[e.Metadata.URN] = time.Now()
	}

	if e := event.ResOutputsEvent; e != nil {
		s.took[e.Metadata.URN] = time.Since(s.began[e.Metadata.URN])
	}
}

// link is a resource in a chain of which each depends on the one before.
type link struct {
	urn  string
	took time.Duration // of it and of all before it
	last *link
}

func (l *link) String() string {
	var names []string

	for ; l != nil; l = l.last {
		own := l.took
		if l.last != nil {
			own -= l.last.took
		}

		names = append(names, fmt.Sprintf("%s %.1f s", urnKey(l.urn), own.Seconds()))
	}

	slices.Reverse(names)

	return strings.Join(names, " → ")
}

// longestChain is that of the state's resources which depend on each other, by the time that each of them took. It is
// what a run takes that has no other limit.
func (w *world) longestChain(stack string, s *stopwatch) *link {
	w.t.Helper()

	var state struct {
		Deployment struct {
			Resources []struct {
				URN          string   `json:"urn"`
				Custom       bool     `json:"custom"`
				Dependencies []string `json:"dependencies"`
			} `json:"resources"`
		} `json:"deployment"`
	}
	require.NoError(w.t, json.Unmarshal([]byte(w.state(stack)), &state))

	longest, ends := &link{}, map[string]*link{}

	for _, r := range state.Deployment.Resources { // what a resource depends on is before it
		l := &link{urn: r.URN}

		for _, before := range r.Dependencies {
			if end := ends[before]; end != nil && (l.last == nil || end.took > l.last.took) {
				l.last = end
			}
		}

		if l.last != nil {
			l.took = l.last.took
		}

		if r.Custom { // a component takes as long as all that it has
			l.took += s.took[r.URN]
		}

		ends[r.URN] = l
		if l.took > longest.took {
			longest = l
		}
	}

	return longest
}
