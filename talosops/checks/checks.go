// Package checks repeats a set of checks until all of them pass. It prints what it waits for every 15 seconds; its
// error at the limit names every check that is still open.
package checks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// CallTimeout bounds one call, so that a node that drops packets does not delay the checks of the others.
const CallTimeout = 10 * time.Second

// A progress line is printed once per reminderInterval, and names maxNamed checks at most.
const (
	reminderInterval = 15 * time.Second
	maxNamed         = 3
)

// Watch repeats checks until none is open, and reports progress.
type Watch struct {
	Timeout, Interval time.Duration // of a wait; between two rounds

	mu       sync.Mutex
	Progress io.Writer
}

// Goal describes what a Watch waits for, in the words of its errors.
type Goal struct {
	Before string // "interrupted before …"
	Missed string // "… after 5m0s"
	Remedy string
}

// Finding is the result of one check.
type Finding struct {
	Node, Check           string
	Problem, Detail, Note string
}

// Report holds the findings of one round.
type Report []Finding

// Problem returns a report with a single open finding.
func Problem(node, check, problem, detail string) Report {
	return Report{{Node: node, Check: check, Problem: problem, Detail: detail}}
}

// Until repeats round until no check is open. At the limit, or at an interrupt, the error names every open check.
func (w *Watch) Until(ctx context.Context, g Goal, round func(context.Context) Report) error {
	return w.Within(ctx, w.Timeout, g, round)
}

// Within is Until with its own limit.
func (w *Watch) Within(
	ctx context.Context, timeout time.Duration, g Goal, round func(context.Context) Report,
) error {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()

	var last Report

	started := time.Now()
	next := started // when the next progress line is due

	for {
		current := round(limited)
		if len(current.Open()) == 0 {
			return nil
		}
		// Calls that the limit interrupted prove nothing about their nodes: keep the round before them.
		if limited.Err() == nil || last == nil {
			last = current
		}

		if now := time.Now(); limited.Err() == nil && !now.Before(next) {
			w.Print(waitingLine(last.Open(), now.Sub(started)))
			next = now.Add(reminderInterval)
		}

		if Pause(limited, w.Interval) != nil {
			return w.limitError(ctx, timeout, g, last)
		}
	}
}

// Pause waits for d. It returns the context's error if that ends first.
func Pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()

	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *Watch) limitError(ctx context.Context, timeout time.Duration, g Goal, last Report) error {
	open := last.Open()

	lines := make([]string, 0, len(open))
	for _, f := range open {
		lines = append(lines, "  "+f.String())
	}

	missing := fmt.Sprintf("%d of %d checks are open:\n%s", len(open), len(last), strings.Join(lines, "\n"))
	if errors.Is(ctx.Err(), context.Canceled) {
		return fmt.Errorf("interrupted before %s; %s\nrun the same again to keep waiting", g.Before, missing)
	}

	return fmt.Errorf("%s after %s; %s\n%s, then run the same again", g.Missed, timeout, missing, g.Remedy)
}

// waitingLine formats the progress line about open checks.
func waitingLine(open Report, since time.Duration) string {
	line := "waits"
	if since >= time.Second {
		line += " for " + since.Round(time.Second).String()
	}

	groups := GroupByNode(open)
	texts := make([]string, 0, maxNamed)

	for _, f := range groups[:min(maxNamed, len(groups))] {
		texts = append(texts, f.String())
	}

	line += ": " + strings.Join(texts, "; ")
	if more := len(groups) - maxNamed; more > 0 {
		line += fmt.Sprintf("; and %d more", more)
	}

	return line
}

// GroupByNode merges findings that differ only in their node. It drops "connection refused", which is normal while a
// machine boots.
func GroupByNode(open Report) Report {
	var groups Report

	for _, f := range open {
		if strings.Contains(f.Detail, "connection refused") {
			f.Detail = ""
		}

		same := slices.IndexFunc(groups, func(g Finding) bool {
			return g.Check == f.Check && g.Problem == f.Problem && g.Detail == f.Detail
		})
		if same < 0 {
			groups = append(groups, f)

			continue
		}

		groups[same].Node += ", " + f.Node
	}

	return groups
}

// PrintNote prints an event of a node.
func (w *Watch) PrintNote(ctx context.Context, node, check, what string) {
	if ctx.Err() == nil {
		w.Print(Finding{Node: node, Check: check, Note: what}.String())
	}
}

// Print prints a line of progress.
func (w *Watch) Print(line string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	// Continue even if nobody reads the progress.
	_, _ = fmt.Fprintln(w.Progress, line)
}

// LineWriter returns a writer for callers that write whole lines of progress.
func (w *Watch) LineWriter() io.Writer { return lineWriter{w} }

type lineWriter struct{ *Watch }

// Write implements io.Writer.
func (w lineWriter) Write(line []byte) (int, error) {
	w.Print(strings.TrimSuffix(string(line), "\n"))

	return len(line), nil
}

// String formats a finding for a line of progress or of an error.
func (f Finding) String() string {
	text := f.Problem
	switch {
	case text == "":
		text = f.Note
	case f.Detail != "":
		text += ": " + f.Detail
	}

	return fmt.Sprintf("%s: %s: %s", f.Node, f.Check, text)
}

// Open returns the findings with a problem.
func (r Report) Open() Report {
	return slices.DeleteFunc(slices.Clone(r), func(f Finding) bool { return f.Problem == "" })
}

// ParallelMap calls do for all elements at once, and returns the results in their order.
func ParallelMap[E, T any](list []E, do func(i int, one E) T) []T {
	results := make([]T, len(list))

	var wg sync.WaitGroup
	for i, one := range list {
		wg.Go(func() { results[i] = do(i, one) })
	}

	wg.Wait()

	return results
}
