package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/engine"
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
// of Pulumi's notes it either. Stand-ins are plugins with their own processes, which outlive their engine as the
// published ones do.
func (w *world) killed(stack string, reached func(w *world) bool, plugins bool) {
	w.t.Helper()

	if who == engine.StandIn {
		program, err := os.Executable()
		require.NoError(w.t, err)

		w.options.StandInPlugin = program
	}

	cli := w.options.CLI

	defer func() { w.options.CLI = cli }()

	w.traceable()

	ctx, cancel := context.WithCancel(w.t.Context())
	defer cancel()

	w.when(ctx, reached, func() { w.kill(plugins) })

	_, err := w.tryUp(ctx, stack)
	require.Error(w.t, err, "the run ended before it was killed")
	require.NoError(w.t, os.Remove(filepath.Join(w.dir, "work", "running-"+w.options.Stack)))
}

// traceable makes the engine's runs leave their process ids in the world's folder, for kill.
func (w *world) traceable() {
	script := fmt.Sprintf("#!/bin/sh\necho $$ > %s\nexec %s \"$@\"\n", w.pidFile(), w.options.CLI.Path)
	path := filepath.Join(w.dir, "pulumi.sh")
	require.NoError(w.t, os.WriteFile(path, []byte(script), 0o700))

	w.options.CLI.Path = path
}

func (w *world) pidFile() string { return filepath.Join(w.dir, "pid") }

// kill ends the Pulumi CLI without a chance to clean up, and with it, as a power cut does, the plugins that it has
// started.
func (w *world) kill(plugins bool) {
	b, err := os.ReadFile(w.pidFile())
	if !assert.NoError(w.t, err) {
		return
	}

	pid := strings.TrimSpace(string(b))
	running := []string{pid}

	threads, err := filepath.Glob("/proc/" + pid + "/task/*/children")
	assert.NoError(w.t, err)

	for _, thread := range threads {
		if plugins {
			children, _ := os.ReadFile(thread) // a thread that has ended has none
			running = append(running, strings.Fields(string(children))...)
		}
	}

	for _, process := range running {
		if id, err := strconv.Atoi(process); assert.NoError(w.t, err) {
			if err := syscall.Kill(id, syscall.SIGKILL); !errors.Is(err, syscall.ESRCH) { // it may have ended by itself
				assert.NoError(w.t, err)
			}
		}
	}
}

// environment is a user's own, who works with the stack by plain commands.
func (w *world) environment() []string {
	w.t.Helper()

	connection, err := w.lab.Connection()
	require.NoError(w.t, err)

	return append(os.Environ(), "PULUMI_BACKEND_URL=file://"+filepath.Join(w.dir, "state"),
		"PULUMI_HOME="+filepath.Join(w.dir, "pulumi"),
		"PULUMI_CONFIG_PASSPHRASE_FILE="+filepath.Join(w.dir, "passphrase"), "SSL_CERT_FILE="+connection.CA,
		"PULUMI_SKIP_UPDATE_CHECK=true")
}

// recover runs the command of `make recover`, and returns what it said.
func (w *world) recover() string {
	w.t.Helper()

	said, err := w.tryRecover("--yes")
	require.NoError(w.t, err, said)

	return said
}

func (w *world) tryRecover(flags ...string) (string, error) {
	w.t.Helper()

	program, err := filepath.Abs(filepath.Join(project, ".bin", "recover"))
	require.NoError(w.t, err)
	require.FileExists(w.t, program, "`make tools` builds it")

	cmd := exec.CommandContext(w.t.Context(), program, append(flags, "--project", filepath.Join(w.dir, "work"), "--pulumi",
		w.options.CLI.Path,
		"--talosops", w.options.TalosOps, w.options.Stack)...)
	cmd.Env = w.environment()

	var said bytes.Buffer

	cmd.Stdout, cmd.Stderr = &said, &said
	err = cmd.Run()
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
