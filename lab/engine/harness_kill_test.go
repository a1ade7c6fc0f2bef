package engine_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// when does something once, as soon as the moment is reached.
func (w *world) when(ctx context.Context, reached func(w *world) bool, do func()) {
	go func() {
		for !reached(w) && ctx.Err() == nil {
			time.Sleep(5 * time.Millisecond)
		}

		if ctx.Err() == nil {
			do()
		}
	}()
}

// killed runs an up that is killed at a moment, with its plugins or without them, and forgets that it ran, as nothing
// of Pulumi's notes it either.
func (w *world) killed(stack string, reached func(w *world) bool, plugins bool) {
	w.t.Helper()

	ctx, cancel := context.WithCancel(w.t.Context())
	defer cancel()

	w.when(ctx, reached, func() { w.kill(plugins) })

	_, err := w.tryUp(ctx, stack)
	require.Error(w.t, err, "the run ended before it was killed")
	w.forgetRun()
}

// forgetRun takes back the lab's note of a run that was killed, which nothing of Pulumi's takes.
func (w *world) forgetRun() {
	w.t.Helper()

	err := os.Remove(filepath.Join(w.dir, "work", "running-"+w.options.Stack))
	if !errors.Is(err, fs.ErrNotExist) {
		require.NoError(w.t, err)
	}
}

// kill ends the Pulumi CLI without a chance to clean up, and with it, as a power cut does, the plugins that it has
// started.
func (w *world) kill(plugins bool) {
	running := w.commands("pulumi")
	assert.NotEmpty(w.t, running, "no engine runs")

	for _, pid := range slices.Clone(running) {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
		assert.NoError(w.t, err)

		for _, thread := range threads {
			children, _ := os.ReadFile(thread) // a thread that has ended has none

			for _, child := range strings.Fields(string(children)) {
				if id, err := strconv.Atoi(child); plugins && assert.NoError(w.t, err) {
					running = append(running, id)
				}
			}
		}
	}

	w.killAll(running)
}

// killAll kills processes, which may have ended by themselves.
func (w *world) killAll(running []int) {
	for _, pid := range running {
		if err := syscall.Kill(pid, syscall.SIGKILL); !errors.Is(err, syscall.ESRCH) {
			assert.NoError(w.t, err, pid)
		}
	}
}

// environment is a user's own, who works with the stack by plain commands.
func (w *world) environment() []string {
	w.t.Helper()

	connection, err := w.lab.Connection()
	require.NoError(w.t, err)

	return append(os.Environ(), "PATH="+cmp.Or(w.path, os.Getenv("PATH")), "PULUMI_BACKEND_URL=file://"+filepath.Join(w.dir, "state"),
		"PULUMI_HOME="+filepath.Join(w.dir, "pulumi"),
		"PULUMI_CONFIG_PASSPHRASE_FILE="+filepath.Join(w.dir, "passphrase"), "SSL_CERT_FILE="+connection.CA,
		"PULUMI_SKIP_UPDATE_CHECK=true")
}

// command is talos-proxmox as a user of the stack calls it.
func (w *world) command(arguments ...string) *exec.Cmd {
	w.t.Helper()

	program := built("talos-proxmox")
	require.FileExists(w.t, program, "`make tools` builds it")

	folder := filepath.Join(w.dir, "work")
	cmd := exec.CommandContext(w.t.Context(), program, append(arguments, "--project", folder,
		"--pulumi", w.options.CLI.Path, "--talosops", w.options.TalosOps)...)
	cmd.Dir, cmd.Env = folder, w.environment()

	return cmd
}

// recover runs `talos-proxmox recover`, and returns what it said.
func (w *world) recover() string {
	w.t.Helper()

	said, err := w.tryRecover("--yes")
	require.NoError(w.t, err, said)

	return said
}

func (w *world) tryRecover(flags ...string) (string, error) {
	w.t.Helper()

	cmd := w.command(append([]string{"recover", w.options.Stack}, flags...)...)

	var said bytes.Buffer

	cmd.Stdout, cmd.Stderr = &said, &said
	err := cmd.Run()
	_, _ = w.Write(said.Bytes())

	return said.String(), err
}

// requireRecovered checks that nothing of the killed run is left but what its state knows.
func (w *world) requireRecovered(stack string) {
	w.t.Helper()

	state := w.state(stack)
	assert.NotContains(w.t, state, "pending_operations")

	for name, vmid := range w.machines() {
		assert.Contains(w.t, state, fmt.Sprintf(`"id":"%d"`, vmid), "VM %d %s is not in the state", vmid, name)
	}

	assert.Empty(w.t, w.plugins(), "plugins that work on")
}

// plugins are the plugins that run for this world.
func (w *world) plugins() []string {
	var running []string

	folders, err := filepath.Glob("/proc/[0-9]*/cwd")
	require.NoError(w.t, err)

	for _, folder := range folders {
		if in, err := os.Readlink(folder); err != nil || in != filepath.Join(w.dir, "work") {
			continue
		}

		line, _ := os.ReadFile(filepath.Join(filepath.Dir(folder), "cmdline"))
		if strings.Contains(string(line), "pulumi-resource-") {
			running = append(running, strings.ReplaceAll(string(line), "\x00", " "))
		}
	}

	return running
}

// requireWhole checks that a stack with one control plane and two workers is there once and in full, and can be
// removed.
func (w *world) requireWhole(stack string) {
	w.t.Helper()

	assert.Equal(w.t, map[string]int{"one-cp-1": 2000, "one-general-1": 3000, "one-general-2": 3001}, w.machines())
	w.requireRunning(3)

	w.up(stack, optup.ExpectNoChanges())
	w.destroy(stack)
	w.requireEmpty()
}
