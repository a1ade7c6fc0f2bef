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

// waitOptions say which results of a task count as a success.
type waitOptions struct {
	warnings      bool // exit statuses such as "WARNINGS: 1"
	ignoredStatus int  // HTTP status of a status request that is not an error
	// stopOnInterrupt makes an interrupt stop the task; Proxmox then removes what the task has created.
	stopOnInterrupt bool
}

// runTask starts a task and waits until it has stopped.
func (a *api) runTask(ctx context.Context, method, path string, params form, o waitOptions) error {
	var upid string
	if err := a.call(ctx, method, path, params, &upid); err != nil {
		return err
	}

	return a.waitTask(ctx, upid, o)
}

// waitTask reads the status of a task at each interval until the task has stopped, by itself or by an interrupt.
func (a *api) waitTask(ctx context.Context, upid string, o waitOptions) error {
	parts := strings.Split(upid, ":")
	if len(parts) < 3 {
		return errors.New("the server did not include a data object in the response")
	}

	path := "/nodes/" + parts[1] + "/tasks/" + url.PathEscape(upid)

	var stop <-chan struct{}
	if o.stopOnInterrupt {
		stop = interrupt(ctx)
	}

	canceled := false

	for {
		var status struct {
			Status string `json:"status"`
			Exit   string `json:"exitstatus"`
		}

		err := a.call(ctx, http.MethodGet, path+"/status", nil, &status)

		var answer *statusError

		switch {
		case err == nil && status.Status != "running":
			return exitError(upid, status.Exit, o, canceled)
		case ctx.Err() != nil:
		case err == nil:
		// Right after its start, the task may not be known yet.
		case errors.As(err, &answer) && (answer.code == http.StatusBadRequest || answer.code == o.ignoredStatus):
		default:
			return fmt.Errorf("error while waiting for task %q to complete: %w", upid, err)
		}

		err = sleep(ctx, a.o.poll, stop)

		switch {
		case errors.Is(err, errInterrupted):
			// The task may have ended at the same time: only its exit status shows that.
			stop, canceled = nil, a.call(ctx, http.MethodDelete, path, nil, nil) == nil
		case err != nil:
			return waitError(err, fmt.Sprintf("task %q to complete", upid))
		}
	}
}

// hasLog reports whether a task wrote a log.
func (a *api) hasLog(ctx context.Context, upid string) bool {
	var lines []struct {
		Text string `json:"t"`
	}

	err := a.call(
		ctx, http.MethodGet, "/nodes/"+strings.Split(upid, ":")[1]+"/tasks/"+url.PathEscape(upid)+"/log", nil, &lines,
	)

	return err == nil && len(lines) > 0
}

// exitError returns the error of a task with this exit status.
func exitError(upid, status string, o waitOptions, canceled bool) error {
	if status == "OK" || o.warnings && strings.HasPrefix(status, "WARNINGS: ") && !strings.Contains(status, "ERROR") {
		return nil
	}

	if canceled {
		return fmt.Errorf("%w: task %q was stopped and left nothing behind (exit code: %s)", errInterrupted, upid, status)
	}

	return fmt.Errorf("task %q failed to complete with exit code: %s", upid, status)
}

// retry calls do at most n times, until it succeeds or shouldRetry returns false. The pauses double; the first one
// has the given number of intervals.
func (a *api) retry(
	ctx context.Context, n int, intervals float64, shouldRetry func(error) bool, do func() error,
) error {
	pause := time.Duration(intervals * float64(a.o.poll))

	for try := 1; ; try++ {
		err := do()
		if err == nil || try >= n || ctx.Err() != nil || errors.Is(err, errInterrupted) || !shouldRetry(err) {
			return err
		}

		if sleep(ctx, pause, interrupt(ctx)) != nil {
			return err
		}

		pause *= 2
	}
}

// anyError retries after every error.
func anyError(error) bool { return true }

// errorContains retries after errors with this text.
func errorContains(text string) func(error) bool {
	return func(err error) bool { return strings.Contains(err.Error(), text) }
}
