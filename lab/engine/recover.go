package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/pulumi/pulumi/sdk/v3/go/common/apitype"
)

// runningFile is there while an operation on the stack is under way, and afterwards only if the operation was killed.
func (e *Engine) runningFile() string { return e.workPath("running-" + e.o.Stack) }

// statePath is where the file backend keeps the stack's state.
func (e *Engine) statePath() string {
	return filepath.Join(e.o.Dir, stateFolder, ".pulumi", "stacks", projectName, e.o.Stack+".json")
}

// vmType is the type of the resources whose remains have to be looked for.
const vmType = "proxmoxve:VM/virtualMachine:VirtualMachine"

// running notes that an operation is under way; the returned function takes the note back, unless the CLI was killed (then its exit code is negative).
func (e *Engine) running() (func(), error) {
	if err := os.WriteFile(e.runningFile(), nil, 0o600); err != nil {
		return nil, fmt.Errorf("unable to note the run: %w", err)
	}

	return func() {
		if e.cli.exitCode >= 0 {
			_ = os.Remove(e.runningFile())
		}
	}, nil
}

// restoreState mends what a kill left half-written in the backend, the state from its own backup. It has to happen before the CLI looks at the stack.
func (e *Engine) restoreState() error {
	if _, err := os.Stat(e.runningFile()); errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	path := e.statePath()

	// The backend keeps a file's attributes beside it, can do without them, and stops at half-written ones.
	attributes := path + ".attrs"
	if b, err := os.ReadFile(attributes); err == nil && !json.Valid(b) {
		if err := os.Remove(attributes); err != nil {
			return fmt.Errorf("unable to remove half-written attributes of the state: %w", err)
		}
	}

	if state, err := os.ReadFile(path); err == nil && json.Valid(state) {
		return nil
	}

	backup, err := os.ReadFile(path + ".bak")
	if errors.Is(err, fs.ErrNotExist) { // the stack was being made: there is no state to lose
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("unable to remove a half-written state: %w", err)
		}

		return nil
	}

	if err != nil {
		return fmt.Errorf("unable to read the backup of the state: %w", err)
	}

	if err := os.WriteFile(path, backup, 0o600); err != nil {
		return fmt.Errorf("unable to restore the state from its backup: %w", err)
	}

	return nil
}

// recover makes a stack whose last run was killed usable again. The caller holds the lab's run lock, so a lock in the backend is a dead run's. VMs that the dead run was
// making are unknown to the state and in the way of the next one: they hold nothing yet, since a machine gets its configuration only after its VM is in the state.
func (e *Engine) recover(ctx context.Context) error {
	if _, err := os.Stat(e.runningFile()); errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	if err := e.stack.Cancel(ctx); err != nil {
		return fmt.Errorf("unable to clear the lock of a killed run: %w", err)
	}

	state, err := e.stack.Export(ctx)
	if err != nil {
		return fmt.Errorf("unable to read the state of stack %q: %w", e.o.Stack, err)
	}

	var deployment apitype.DeploymentV3
	if err := json.Unmarshal(state.Deployment, &deployment); err != nil {
		return fmt.Errorf("unable to read the state of stack %q: %w", e.o.Stack, err)
	}

	if e.o.RemoveOrphans != nil {
		known := map[string]bool{}

		for _, resource := range deployment.Resources {
			if resource.Type == vmType {
				known[resource.ID.String()] = true
			}
		}

		if err := e.o.RemoveOrphans(ctx, known); err != nil {
			return fmt.Errorf("unable to remove what a killed run left: %w", err)
		}
	}

	if err := e.forgetPending(ctx, state, deployment); err != nil {
		return err
	}

	if err := os.Remove(e.runningFile()); err != nil {
		return fmt.Errorf("unable to take back the note of the killed run: %w", err)
	}

	return nil
}

// forgetPending takes the operations that a killed run had begun off the state's list; what they left has been removed.
func (e *Engine) forgetPending(ctx context.Context, state apitype.UntypedDeployment, deployment apitype.DeploymentV3) (err error) {
	if len(deployment.PendingOperations) == 0 {
		return nil
	}

	deployment.PendingOperations = nil

	if state.Deployment, err = json.Marshal(deployment); err != nil {
		return fmt.Errorf("unable to write the state of stack %q: %w", e.o.Stack, err)
	}

	if err := e.stack.Import(ctx, state); err != nil {
		return fmt.Errorf("unable to write the state of stack %q: %w", e.o.Stack, err)
	}

	return nil
}
