package recovery_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/recovery"
)

// lockedBy makes the backend a folder with a lock, and with a half-written state whose backup is whole.
func (w *fixture) lockedBy(user, host string, pid int) func(*recovery.Options) {
	w.t.Helper()

	meta := filepath.Join(w.t.TempDir(), ".pulumi")
	write := func(path, text string) {
		require.NoError(w.t, os.MkdirAll(filepath.Dir(filepath.Join(meta, path)), 0o700))
		require.NoError(w.t, os.WriteFile(filepath.Join(meta, path), []byte(text), 0o600))
	}

	lock, err := json.Marshal(map[string]any{
		"pid": pid, "username": user, "hostname": host, "timestamp": time.Date(2026, 11, 27, 8, 0, 0, 0, time.UTC),
	})
	require.NoError(w.t, err)
	write("locks/organization/talos-proxmox/prod/1.json", string(lock))
	write("stacks/talos-proxmox/prod.json", "{half")
	write("stacks/talos-proxmox/prod.json.bak", "{}")

	w.stateFile = filepath.Join(meta, "stacks/talos-proxmox/prod.json")

	return func(o *recovery.Options) {
		o.Locks, o.Pulumi = nil, func(ctx context.Context, stdin io.Reader, args ...string) ([]byte, error) {
			if slices.Equal(args, []string{"whoami", "--json"}) {
				return fmt.Appendf(nil, `{"url": "file://%s"}`, filepath.Dir(meta)), nil
			}

			return w.pulumi(ctx, stdin, args...)
		}
	}
}

// requireUntouched expects that nothing was unlocked, repaired, ended or removed.
func (w *fixture) requireUntouched() {
	w.t.Helper()
	assert.Empty(w.t, w.calls)
	assert.NotNil(w.t, w.vm)

	if w.stateFile != "" {
		text, err := os.ReadFile(w.stateFile)
		require.NoError(w.t, err)
		assert.Equal(w.t, "{half", string(text), "another computer may be writing it")
	}
}

// TestNothingIsLeft: without a lock, pending operations and machines to remove, nothing is asked or done.
func TestNothingIsLeft(t *testing.T) {
	t.Parallel()

	w := newFixture(t)
	folder := w.lockedBy("ann", "laptop", 1)
	locks := filepath.Join(filepath.Dir(filepath.Dir(filepath.Dir(w.stateFile))), "locks")
	require.NoError(t, os.RemoveAll(locks))

	w.state = w.deployment(nil, nil)

	require.NoError(t, w.run(func(o *recovery.Options) {
		folder(o)

		o.Confirm = func(question string) (bool, error) {
			assert.Fail(t, "it asks: "+question)

			return false, nil
		}
	}))
	assert.Contains(t, w.out.String(), "Stack prod has 0 pending operations.\nNothing is left to recover.\n")
	assert.Empty(t, w.calls)
}

// TestALockOfAnotherComputer is removed only if it is named, or after a question about its run.
func TestALockOfAnotherComputer(t *testing.T) {
	t.Parallel()

	const refusal = "stack prod is locked by another computer (ann@laptop), so that nothing was unlocked, ended or removed: a run there may be " +
		"under way, and recover would delete what it creates. Make sure that it has ended, then name the lock: talos-proxmox recover " +
		"prod --yes --lock ann@laptop"

	answer := func(yes bool) func(*recovery.Options) {
		return func(o *recovery.Options) { o.Confirm = func(string) (bool, error) { return yes, nil } }
	}

	for name, test := range map[string]struct {
		change   func(*recovery.Options)
		declined bool
		refused  string
	}{
		"--yes":               {refused: refusal},
		"another lock named":  {change: func(o *recovery.Options) { o.Locks = []string{"bob@laptop"} }, refused: refusal},
		"named":               {change: func(o *recovery.Options) { o.Locks = []string{"ann@laptop"} }},
		"its run has ended":   {change: answer(true)},
		"its run is not over": {change: answer(false), declined: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			w := newFixture(t)
			locked := w.lockedBy("ann", "laptop", os.Getpid())

			err := w.run(func(o *recovery.Options) {
				locked(o)

				if test.change != nil {
					test.change(o)
				}
			})

			switch {
			case test.declined:
				require.ErrorIs(t, err, recovery.ErrDeclined)
				w.requireUntouched()
			case test.refused != "":
				require.EqualError(t, err, test.refused)
				w.requireUntouched()
			default:
				require.NoError(t, err)
				assert.Contains(t, w.calls, "cancel --yes --stack prod")
				assert.Nil(t, w.vm)
			}

			assert.Contains(t, w.out.String(), "Stack prod is locked by ann on laptop (process ")
		})
	}
}

// TestALockOfThisComputer: its process has ended, or is the Pulumi CLI and runs.
func TestALockOfThisComputer(t *testing.T) {
	t.Parallel()

	host, err := os.Hostname()
	require.NoError(t, err)

	sleep, err := exec.LookPath("sleep")
	require.NoError(t, err)

	program, err := os.ReadFile(sleep) //nolint:gosec // a system's program
	require.NoError(t, err)

	pulumi := filepath.Join(t.TempDir(), "pulumi")
	require.NoError(t, os.WriteFile(pulumi, program, 0o700)) //nolint:gosec // a program

	running := exec.CommandContext(t.Context(), pulumi, "600") //nolint:gosec // the copy
	require.NoError(t, running.Start())
	t.Cleanup(func() { _ = running.Process.Kill(); _ = running.Wait() })

	w := newFixture(t)
	err = w.run(w.lockedBy("me", host, running.Process.Pid))
	require.ErrorIs(t, err, recovery.ErrUnderWay)
	require.ErrorContains(t, err, fmt.Sprintf("process %d of this computer holds its lock", running.Process.Pid))
	w.requireUntouched()

	ended := exec.CommandContext(t.Context(), "true")
	require.NoError(t, ended.Run())

	w = newFixture(t)
	require.NoError(t, w.run(w.lockedBy("me", host, ended.Process.Pid)))
	assert.Contains(t, w.calls, "cancel --yes --stack prod")
}

// TestABackendThatDoesNotNameItsLocks: with --yes, its lock is named as well.
func TestABackendThatDoesNotNameItsLocks(t *testing.T) {
	t.Parallel()

	w := newFixture(t)
	err := w.run(func(o *recovery.Options) { o.Locks = nil })
	require.ErrorContains(t, err, "the backend of stack prod does not tell recover whether another computer holds its lock")
	require.ErrorContains(t, err, "talos-proxmox recover prod --yes --lock unknown")
	w.requireUntouched()

	var question string

	w = newFixture(t)
	require.ErrorIs(t, w.run(func(o *recovery.Options) {
		o.Locks, o.Confirm = nil, func(text string) (bool, error) {
			question = text

			return false, nil
		}
	}), recovery.ErrDeclined)
	assert.Contains(t, question, "does not tell recover whether another computer holds its lock")
	w.requireUntouched()
}

// TestARunThatHoldsACluster in Kubernetes is alive, wherever it runs and whatever is named.
func TestARunThatHoldsACluster(t *testing.T) {
	t.Parallel()

	w := newFixture(t)
	err := w.run(func(o *recovery.Options) {
		o.Runs = func(context.Context) ([]string, []string, error) {
			return []string{"cluster one: ann@laptop (process 7) brings stack prod up since 2026-11-27T08:00:00Z"}, nil, nil
		}
	})
	require.ErrorIs(t, err, recovery.ErrUnderWay)
	require.ErrorContains(t, err, "cluster one: ann@laptop (process 7)")
	w.requireUntouched()

	for _, runs := range []func(context.Context) (live, unknown []string, err error){
		func(context.Context) ([]string, []string, error) {
			return nil, []string{"cluster one: no route to host"}, nil
		},
		func(context.Context) ([]string, []string, error) { return nil, nil, errors.New("no route to host") },
	} {
		w = newFixture(t)
		require.NoError(t, w.run(func(o *recovery.Options) { o.Runs = runs }))
		assert.Contains(t, w.out.String(), "Whether a run works on it is not known: ")
		assert.Nil(t, w.vm)
	}
}
