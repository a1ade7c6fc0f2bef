package proxmoxapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/luthermonson/go-proxmox"
)

// Sleep waits, or returns the context's error.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Task is a task of a host.
type Task struct {
	UPID proxmox.UPID `json:"upid"`
	Type string       `json:"type"`
	ID   string       `json:"id"` // the VMID, or the name of a downloaded file
	End  int64        `json:"endtime"`
}

// RunningTasks lists the unfinished tasks of a host that the credentials may see.
func RunningTasks(ctx context.Context, get Get, host string) ([]Task, error) {
	var list, running []Task
	if err := get(ctx, "/nodes/"+url.PathEscape(host)+"/tasks?source=active", &list); err != nil {
		return nil, fmt.Errorf("unable to list the tasks of %s: %w", host, Cause(err))
	}

	for _, t := range list {
		if t.End == 0 {
			running = append(running, t)
		}
	}

	return running, nil
}

// Changes sends requests that change something, and waits for the tasks that they start.
type Changes struct {
	Client *proxmox.Client
	Poll   time.Duration
	// Progress gets the last line of the log of a task that runs, every 15 seconds; nil = nobody does.
	Progress func(line string)
}

// Limits of a change: of its request, for which Proxmox' proxy waits half a minute, and between two lines of progress.
const (
	changeTimeout    = time.Minute
	progressInterval = 15 * time.Second
)

// Send sends a request, and waits for its task if it starts one; a task with warnings succeeded.
func (c Changes) Send(ctx context.Context, method, path string, parameters map[string]any) error {
	var body []byte

	if parameters != nil {
		var err error
		if body, err = json.Marshal(parameters); err != nil {
			return err
		}
	}

	limited, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()

	var answer any
	if err := c.Client.Req(limited, method, path, body, &answer); err != nil {
		return Cause(err)
	}

	if id, _ := answer.(string); strings.HasPrefix(id, "UPID:") {
		return c.Await(ctx, proxmox.UPID(id))
	}

	return nil
}

// Await polls a task until it has ended, and returns an error if it failed; a task with warnings succeeded.
func (c Changes) Await(ctx context.Context, id proxmox.UPID) error {
	task := proxmox.NewTask(id, c.Client)
	if task == nil {
		return errors.New("Proxmox returned no task") //nolint:staticcheck // a name
	}

	for shown := time.Now(); ; {
		if err := task.Ping(ctx); err != nil {
			return Cause(err)
		}

		if task.IsCompleted {
			break
		}

		if c.Progress != nil && time.Since(shown) >= progressInterval {
			shown = time.Now()

			c.Progress(c.lastLine(ctx, task))
		}

		if err := Sleep(ctx, c.Poll); err != nil {
			return err
		}
	}

	if !task.IsSuccessful && !strings.HasPrefix(task.ExitStatus, "WARNINGS:") {
		return fmt.Errorf("its task ended with %q", task.ExitStatus)
	}

	return nil
}

// lastLine returns the last line of a task's log, or what prevents reading it.
func (c Changes) lastLine(ctx context.Context, task *proxmox.Task) string {
	var log []struct {
		Text string `json:"t"`
	}

	path := fmt.Sprintf("/nodes/%s/tasks/%s/log?limit=0", url.PathEscape(task.Node), url.PathEscape(string(task.UPID)))
	if err := c.Client.Get(ctx, path, &log); err != nil {
		return Cause(err).Error()
	}

	if len(log) == 0 {
		return task.Type
	}

	return strings.TrimSpace(log[len(log)-1].Text)
}
