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
)

// metaFolder is where a file backend keeps states and locks, relative to its URL.
const metaFolder = ".pulumi"

// readBackend finds out where the state is stored, and reads the stack's locks if that is a folder.
func (r *recovery) readBackend(ctx context.Context) error {
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

	if folder, ok := fileBackend(login.URL, r.Project); ok {
		r.backend = folder
		r.readLocks()
	}

	return nil
}

// repairBackend repairs a file backend: a state that was half-written when the run was killed is restored from its
// backup. Other backends write objects atomically.
func (r *recovery) repairBackend(_ context.Context) error {
	if r.backend == "" {
		return nil
	}

	return r.repairState(filepath.Join(r.backend, metaFolder, "stacks", r.name, r.stackName()+".json"))
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
