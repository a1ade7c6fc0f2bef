package talosopsexec

import (
	"sync"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
)

// Ending collects what a program does once its run has ended: the last deletion is done, or the run has failed. The
// engine waits for it.
type Ending struct {
	mu    sync.Mutex
	ended bool
	steps []func(failed bool) error
	notes []string // progress that the run's own log no longer takes
}

type endingKey struct{}

// WithEnding returns a context whose components add to an ending.
func WithEnding(ctx *pulumi.Context, e *Ending) *pulumi.Context { return ctx.WithValue(endingKey{}, e) }

// EndingOf returns the ending of a context; nil = none.
func EndingOf(ctx *pulumi.Context) *Ending {
	e, _ := ctx.Value(endingKey{}).(*Ending)

	return e
}

// Add adds a step. Without an ending, it is never called.
func (e *Ending) Add(step func(failed bool) error) {
	if e == nil {
		return
	}

	e.mu.Lock()
	defer e.mu.Unlock()

	e.steps = append(e.steps, step)
}

// Note keeps a line of progress if the run has ended.
func (e *Ending) Note(line string) (kept bool) {
	if e == nil {
		return false
	}

	e.mu.Lock()
	defer e.mu.Unlock()

	if e.ended {
		e.notes = append(e.notes, line)
	}

	return e.ended
}

// Run calls all steps at once. It returns their notes, and what failed.
func (e *Ending) Run(runFailed bool) (notes []string, failed []error) {
	e.mu.Lock()
	e.ended = true
	steps := e.steps
	e.mu.Unlock()

	failures := make([]error, len(steps))

	var wg sync.WaitGroup
	for i, step := range steps {
		wg.Go(func() { failures[i] = step(runFailed) })
	}

	wg.Wait()

	for _, err := range failures {
		if err != nil {
			failed = append(failed, err)
		}
	}

	e.mu.Lock()
	defer e.mu.Unlock()

	return e.notes, failed
}
