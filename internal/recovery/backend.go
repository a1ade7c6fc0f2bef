package recovery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// metaFolder is where a file backend keeps states and locks, relative to its URL.
const metaFolder = ".pulumi"

// repairBackend repairs a file backend: a state that was half-written when the run was killed is restored from its
// backup. Other backends write objects atomically.
func (r *recovery) repairBackend(ctx context.Context) error {
	out, err := r.Pulumi(ctx, nil, "whoami", "--json")
	if err != nil {
		return fmt.Errorf("unable to determine where the state is stored: %w", err)
	}

	var login struct {
		URL string `json:"url"`
	}
	if err := json.Unmarshal(out, &login); err != nil {
		return fmt.Errorf("unable to determine where the state is stored: %w", err)
	}

	folder, ok := fileBackend(login.URL, r.Project)
	if !ok {
		return nil
	}

	for _, lock := range r.locks(folder) {
		r.printf("Stack %s is locked by %s.", r.Stack, lock)
	}

	return r.repairState(filepath.Join(folder, metaFolder, "stacks", r.name, r.stackName()+".json"))
}

// fileBackend returns the folder of a file backend's URL; false for any other backend.
func fileBackend(url, project string) (string, bool) {
	path, ok := strings.CutPrefix(url, "file://")
	if !ok {
		return "", false
	}

	path, _, _ = strings.Cut(path, "?")
	if rest, home := strings.CutPrefix(path, "~"); home {
		path = filepath.Join(os.Getenv("HOME"), rest)
	}

	if !filepath.IsAbs(path) {
		path = filepath.Join(project, path)
	}

	return path, true
}

// locks describes the stack's locks: who took each, where and when.
func (r *recovery) locks(folder string) []string {
	//nolint:errcheck // the pattern is valid
	files, _ := filepath.Glob(filepath.Join(folder, metaFolder, "locks", "organization", r.name, r.stackName(), "*.json"))

	var locks []string

	for _, file := range files {
		var lock struct {
			PID       int       `json:"pid"`
			Username  string    `json:"username"`
			Hostname  string    `json:"hostname"`
			Timestamp time.Time `json:"timestamp"`
		}
		if b, err := os.ReadFile(file); err == nil && json.Unmarshal(b, &lock) == nil { //nolint:gosec // the backend's own
			locks = append(
				locks,
				fmt.Sprintf(
					"%s on %s (process %d) since %s", lock.Username, lock.Hostname, lock.PID, lock.Timestamp.Format(time.DateTime),
				),
			)
		}
	}

	return locks
}

// repairState replaces a half-written state by its backup. A first state has no backup; it is deleted, and nothing is
// lost with it.
func (r *recovery) repairState(path string) error {
	// The attributes beside the state are optional, but the backend fails on half-written ones.
	attributes := path + ".attrs"
	if b, err := os.ReadFile(attributes); err == nil && !json.Valid(b) { //nolint:gosec // the backend's own
		if err := os.Remove(attributes); err != nil {
			return fmt.Errorf("unable to remove half-written attributes of the state: %w", err)
		}

		r.printf("half-written attributes of the state were removed: %s", attributes)
	}

	state, err := os.ReadFile(path) //nolint:gosec // the backend's own
	if err != nil || json.Valid(state) {
		return nil //nolint:nilerr // no state, or one under another name: the CLI reports it
	}

	backup, err := os.ReadFile(path + ".bak") //nolint:gosec // the backend's own
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("unable to remove a half-written state: %w", err)
		}

		r.stateRemoved = true
		r.printf(
			"the state was being written for the first time, and nothing was made: pulumi stack init %s starts over", r.Stack,
		)

		return nil
	case err == nil && !json.Valid(backup):
		return fmt.Errorf("neither the state %s nor its backup %s.bak is whole: restore one of `talos-proxmox backup state`", path, path)
	case err == nil:
		err = os.WriteFile(path, backup, 0o600) //nolint:gosec // the backend's own
	}

	if err != nil {
		return fmt.Errorf("unable to restore the state from its backup: %w", err)
	}

	r.printf("the state was half-written and is restored from its backup: %s", path)

	return nil
}
