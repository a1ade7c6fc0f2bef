package proxmoxve

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// waitOptions say which endings of a task count as a success.
type waitOptions struct {
	warnings bool // exit statuses such as "WARNINGS: 1"
	ignore   int  // an HTTP status of the question that is not an answer
	// undo says that an interrupt stops the task, and Proxmox then removes what it had made.
	undo bool
}

// task starts a task and waits for its end.
func (a *api) task(ctx context.Context, method, path string, params form, o waitOptions) error {
	var upid string
	if err := a.call(ctx, method, path, params, &upid); err != nil {
		return err
	}

	return a.wait(ctx, upid, o)
}

// wait asks at once, and then at every interval, until the task has stopped, by itself or by an interrupt.
func (a *api) wait(ctx context.Context, upid string, o waitOptions) error {
	parts := strings.Split(upid, ":")
	if len(parts) < 3 {
		return errors.New("the server did not include a data object in the response")
	}

	path := "/nodes/" + parts[1] + "/tasks/" + url.PathEscape(upid)

	var stop <-chan struct{}
	if o.undo {
		stop = interrupt(ctx)
	}

	undone := false

	for {
		var status struct {
			Status string `json:"status"`
			Exit   string `json:"exitstatus"`
		}

		err := a.call(ctx, http.MethodGet, path+"/status", nil, &status)

		var answer *statusError

		switch {
		case err == nil && status.Status != "running":
			return exit(upid, status.Exit, o, undone)
		case ctx.Err() != nil:
		case err == nil:
		// The task may not be known yet right after it was started.
		case errors.As(err, &answer) && (answer.code == http.StatusBadRequest || answer.code == o.ignore):
		default:
			return fmt.Errorf("error while waiting for task %q to complete: %w", upid, err)
		}

		err = sleep(ctx, a.o.poll, stop)

		switch {
		case errors.Is(err, errInterrupted):
			// It may have ended just now: only its exit status tells.
			stop, undone = nil, a.call(ctx, http.MethodDelete, path, nil, nil) == nil
		case err != nil:
			return stopped(err, fmt.Sprintf("task %q to complete", upid))
		}
	}
}

// hasLog tells whether a task wrote anything that could be shown.
func (a *api) hasLog(ctx context.Context, upid string) bool {
	var lines []struct {
		Text string `json:"t"`
	}

	err := a.call(
		ctx, http.MethodGet, "/nodes/"+strings.Split(upid, ":")[1]+"/tasks/"+url.PathEscape(upid)+"/log", nil, &lines,
	)

	return err == nil && len(lines) > 0
}

// exit judges how a task ended by its exit status.
func exit(upid, status string, o waitOptions, undone bool) error {
	if status == "OK" || o.warnings && strings.HasPrefix(status, "WARNINGS: ") && !strings.Contains(status, "ERROR") {
		return nil
	}

	if undone {
		return fmt.Errorf("%w: task %q was stopped and left nothing behind (exit code: %s)", errInterrupted, upid, status)
	}

	return fmt.Errorf("task %q failed to complete with exit code: %s", upid, status)
}

// tries runs do until it succeeds, at most n times while again allows it, with doubling pauses that start at the given
// number of intervals.
func (a *api) tries(ctx context.Context, n int, intervals float64, again func(error) bool, do func() error) error {
	pause := time.Duration(intervals * float64(a.o.poll))

	for try := 1; ; try++ {
		err := do()
		if err == nil || try >= n || ctx.Err() != nil || errors.Is(err, errInterrupted) || !again(err) {
			return err
		}

		if sleep(ctx, pause, interrupt(ctx)) != nil {
			return err
		}

		pause *= 2
	}
}

// always tries again after any error.
func always(error) bool { return true }

// saying tries again after errors with these words.
func saying(words string) func(error) bool {
	return func(err error) bool { return strings.Contains(err.Error(), words) }
}
