package verbs

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"time"

	"github.com/spf13/cobra"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/proxmoxapi"
)

// Limits of what is made on a host: of a whole call, and between two looks at a task.
const (
	hostTimeout = time.Hour
	hostPoll    = time.Second
)

// proxmoxHost is a host of Proxmox on which a verb makes something through the API.
type proxmoxHost struct {
	proxmoxapi.Changes

	name   string
	stderr io.Writer
}

// openHost connects to Proxmox with the settings of a request.
func openHost(ctx context.Context, cmd *cobra.Command, settings map[string]string, name string) (*proxmoxHost, error) {
	read := proxmoxapi.Settings(func(key string) string { return settings[key] }, os.Getenv)

	client, err := proxmoxapi.Connect(ctx, read, nil)
	if err != nil {
		return nil, err
	}

	h := &proxmoxHost{name: name, stderr: cmd.ErrOrStderr()}
	h.Changes = proxmoxapi.Changes{
		Client: client, Poll: hostPoll, Progress: func(line string) { h.say("  %s: %s", name, line) },
	}

	return h, nil
}

func (h *proxmoxHost) say(format string, values ...any) {
	fmt.Fprintf(h.stderr, format+"\n", values...) //nolint:errcheck // progress
}

// path returns a path of the host; the values are escaped.
func (h *proxmoxHost) path(format string, values ...string) string {
	escaped := make([]any, len(values))
	for i, value := range values {
		escaped[i] = url.PathEscape(value)
	}

	return "/nodes/" + url.PathEscape(h.name) + fmt.Sprintf(format, escaped...)
}

func (h *proxmoxHost) get(ctx context.Context, path string, into any) error {
	return proxmoxapi.Cause(h.Client.Get(ctx, path, into))
}

// awaitTasks waits for tasks that an interrupted run has left: they outlive whoever started them.
func (h *proxmoxHost) awaitTasks(ctx context.Context, isMine func(proxmoxapi.Task) bool) error {
	running, err := proxmoxapi.RunningTasks(ctx, h.get, h.name)
	if err != nil {
		return err
	}

	for _, task := range running {
		if !isMine(task) {
			continue
		}

		h.say("host %s still works for an interrupted run: %s of %s", h.name, task.Type, task.ID)
		// How it ends is seen in what it leaves.
		if err := h.Await(ctx, task.UPID); err != nil && ctx.Err() != nil {
			return fmt.Errorf("interrupted while waiting for %s of %s on host %s: %w", task.Type, task.ID, h.name, ctx.Err())
		}
	}

	return nil
}

// volumes lists the volumes of a content type in a datastore.
func (h *proxmoxHost) volumes(ctx context.Context, datastore, content string) ([]string, error) {
	var list []struct {
		ID string `json:"volid"`
	}
	if err := h.get(ctx, h.path("/storage/%s/content?content=%s", datastore, content), &list); err != nil {
		return nil, fmt.Errorf("unable to list %s on host %s: %w", datastore, h.name, err)
	}

	var ids []string
	for _, volume := range list {
		ids = append(ids, volume.ID)
	}

	return ids, nil
}

// hostProblems reports what is missing of a request to Proxmox, by key, numbers that are not above 0, and settings that
// the provider does not have.
func hostProblems(settings, required map[string]string, positive map[string]int) (problems problem.List) {
	for key, value := range required {
		if value == "" {
			problems.Add(key, nil, "is missing: set it")
		}
	}

	for key, value := range positive {
		if value <= 0 {
			problems.Add(key, value, "is not above 0: set it")
		}
	}

	for key := range settings {
		if !proxmoxapi.IsSetting(key) {
			problems.Add("proxmox."+key, nil, "is no setting of the provider: use endpoint, apiToken and the like")
		}
	}

	return problems.Sorted()
}
