package main

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

// callTimeout bounds one call, so that a node that swallows packets does not hide what the others say.
const callTimeout = 10 * time.Second

// reminder is between two lines about what is waited for, and named is how many checks such a line names.
const (
	reminder = 15 * time.Second
	named    = 3
)

// watch repeats checks until none is open, and says what it waits for.
type watch struct {
	timeout, interval time.Duration // of a wait, and between two rounds

	mu       sync.Mutex
	progress io.Writer
}

// goal is what a watch waits for, in the words of its errors.
type goal struct {
	before string // interrupted before …
	missed string // … after its time
	remedy string
}

// finding is the result of one check.
type finding struct {
	node, check           string
	problem, detail, note string
}

// report is one round of checks.
type report []finding

// until returns nil once no check of a round is open, and an error that names every open one at the limit or at an
// interrupt.
func (w *watch) until(ctx context.Context, g goal, round func(context.Context) report) error {
	return w.within(ctx, w.timeout, g, round)
}

// within is until with a limit of its own.
func (w *watch) within(
	ctx context.Context, timeout time.Duration, g goal, round func(context.Context) report,
) error {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()

	var last report

	started := time.Now()
	next := started // when to say again what is waited for

	for {
		current := round(limited)
		if len(current.open()) == 0 {
			return nil
		}
		// Calls that the limit cut off say nothing about their nodes: the round before them does.
		if limited.Err() == nil || last == nil {
			last = current
		}

		if now := time.Now(); limited.Err() == nil && !now.Before(next) {
			w.print(waiting(last.open(), now.Sub(started)))
			next = now.Add(reminder)
		}

		pause := time.NewTimer(w.interval)
		select {
		case <-pause.C:
		case <-limited.Done():
			pause.Stop()

			return w.failure(ctx, timeout, g, last)
		}
	}
}

func (w *watch) failure(ctx context.Context, timeout time.Duration, g goal, last report) error {
	open := last.open()

	lines := make([]string, 0, len(open))
	for _, f := range open {
		lines = append(lines, "  "+f.line())
	}

	missing := fmt.Sprintf("%d of %d checks are open:\n%s", len(open), len(last), strings.Join(lines, "\n"))
	if errors.Is(ctx.Err(), context.Canceled) {
		return fmt.Errorf("interrupted before %s; %s\nrun the same again to keep waiting", g.before, missing)
	}

	return fmt.Errorf("%s after %s; %s\n%s, then run the same again", g.missed, timeout, missing, g.remedy)
}

// waiting is the line about checks that are open.
func waiting(open report, since time.Duration) string {
	line := "waits"
	if since >= time.Second {
		line += " for " + since.Round(time.Second).String()
	}

	groups := together(open)
	texts := make([]string, 0, named)

	for _, f := range groups[:min(named, len(groups))] {
		texts = append(texts, f.line())
	}

	line += ": " + strings.Join(texts, "; ")
	if more := len(groups) - named; more > 0 {
		line += fmt.Sprintf("; and %d more", more)
	}

	return line
}

// together has the nodes of which a check says the same in one finding. That nothing listens yet is no news while
// machines boot.
func together(open report) report {
	var groups report

	for _, f := range open {
		if strings.Contains(f.detail, "connection refused") {
			f.detail = ""
		}

		same := slices.IndexFunc(groups, func(g finding) bool {
			return g.check == f.check && g.problem == f.problem && g.detail == f.detail
		})
		if same < 0 {
			groups = append(groups, f)

			continue
		}

		groups[same].node += ", " + f.node
	}

	return groups
}

// say writes what has happened to a node.
func (w *watch) say(ctx context.Context, f finding) {
	if ctx.Err() == nil {
		w.print(f.line())
	}
}

func (w *watch) print(line string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	// Continue even if no one reads the progress.
	_, _ = fmt.Fprintln(w.progress, line)
}

// lines is for those who write whole lines, among which theirs come.
func (w *watch) lines() io.Writer { return lineWriter{w} }

type lineWriter struct{ *watch }

// Write implements io.Writer.
func (w lineWriter) Write(line []byte) (int, error) {
	w.print(strings.TrimSuffix(string(line), "\n"))

	return len(line), nil
}

func (f finding) line() string {
	text := f.problem
	switch {
	case text == "":
		text = f.note
	case f.detail != "":
		text += ": " + f.detail
	}

	return fmt.Sprintf("%s: %s: %s", f.node, f.check, text)
}

func (r report) open() report {
	return slices.DeleteFunc(slices.Clone(r), func(f finding) bool { return f.problem == "" })
}

// each does the same with all at once, and returns what came of it in their order.
func each[E, T any](list []E, do func(i int, one E) T) []T {
	results := make([]T, len(list))

	var wg sync.WaitGroup
	for i, one := range list {
		wg.Go(func() { results[i] = do(i, one) })
	}

	wg.Wait()

	return results
}
