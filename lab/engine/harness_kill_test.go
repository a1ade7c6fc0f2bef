package engine_test

import (
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

// when calls do once, as soon as the moment is reached.
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

// killedUp runs an up that is killed at a moment, with or without its plugins, and removes the lab's marker of the run:
// Pulumi itself has none.
func (w *world) killedUp(stack string, reached func(w *world) bool, plugins bool, opts ...optup.Option) {
	w.t.Helper()

	ctx, cancel := context.WithCancel(w.t.Context())
	defer cancel()

	w.options.NeverKilled = false
	w.when(ctx, reached, func() { w.killEngine(plugins) })

	_, err := w.tryUp(ctx, stack, opts...)
	require.Error(w.t, err, "the run ended before it was killed")
	w.forgetRun()
}

// forgetRun removes the lab's marker of a killed run, which Pulumi itself does not have.
func (w *world) forgetRun() {
	w.t.Helper()

	err := os.Remove(filepath.Join(w.dir, "work", "running-"+w.options.Stack))
	if !errors.Is(err, fs.ErrNotExist) {
		require.NoError(w.t, err)
	}
}

// killEngine kills the Pulumi CLI without a chance to clean up, and optionally, as a power cut does, the plugins that
// it started.
func (w *world) killEngine(plugins bool) {
	running := w.processes("pulumi")
	assert.NotEmpty(w.t, running, "no engine runs")

	for _, pid := range slices.Clone(running) {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
		assert.NoError(w.t, err)

		for _, thread := range threads {
			children, _ := os.ReadFile(thread) // none if the thread has ended

			for _, child := range strings.Fields(string(children)) {
				if id, err := strconv.Atoi(child); plugins && assert.NoError(w.t, err) {
					running = append(running, id)
				}
			}
		}
	}

	w.killProcesses(running)
}

// killProcesses kills processes, which may have ended by themselves.
func (w *world) killProcesses(running []int) {
	for _, pid := range running {
		if err := syscall.Kill(pid, syscall.SIGKILL); !errors.Is(err, syscall.ESRCH) {
			assert.NoError(w.t, err, pid)
		}
	}
}

// userEnvironment is the environment of a user who works with the stack by plain commands.
func (w *world) userEnvironment() []string {
	w.t.Helper()

	connection, err := w.lab.Connection()
	require.NoError(w.t, err)

	return append(os.Environ(), "PATH="+cmp.Or(w.path, os.Getenv("PATH")), "PULUMI_BACKEND_URL=file://"+filepath.Join(w.dir, "state"),
		"PULUMI_HOME="+filepath.Join(w.dir, "pulumi"),
		"PULUMI_CONFIG_PASSPHRASE_FILE="+filepath.Join(w.dir, "passphrase"), "SSL_CERT_FILE="+connection.CA,
		"PULUMI_SKIP_UPDATE_CHECK=true")
}

// command returns talos-proxmox as a user of the stack calls it.
func (w *world) command(arguments ...string) *exec.Cmd {
	w.t.Helper()

	program := toolPath("talos-proxmox")
	require.FileExists(w.t, program, "`make tools` builds it")

	folder := filepath.Join(w.dir, "work")
	cmd := exec.CommandContext(w.t.Context(), program, append(arguments, "--project", folder,
		"--pulumi", w.options.CLI.Path, "--talosops", w.options.TalosOps)...)
	cmd.Dir, cmd.Env = folder, w.userEnvironment()

	return cmd
}

// runCommand runs talos-proxmox, and returns its output, which it adds to that of the runs.
func (w *world) runCommand(arguments ...string) (string, error) {
	w.t.Helper()

	cmd := w.command(arguments...)
	out, err := cmd.CombinedOutput()
	_, _ = w.Write(out)

	return string(out), err
}

// recover runs `talos-proxmox recover`, and returns its output.
func (w *world) recover() string {
	w.t.Helper()

	output, err := w.tryRecover("--yes")
	require.NoError(w.t, err, output)

	return output
}

func (w *world) tryRecover(flags ...string) (string, error) {
	w.t.Helper()

	return w.runCommand(append([]string{"recover", w.options.Stack}, flags...)...)
}

// requireRecovered checks that the killed run left only what its state has.
func (w *world) requireRecovered(stack string) {
	w.t.Helper()

	state := w.state(stack)
	assert.NotContains(w.t, state, "pending_operations")

	for name, vmid := range w.machines() {
		assert.Contains(w.t, state, fmt.Sprintf(`"id":"%d"`, vmid), "VM %d %s is not in the state", vmid, name)
	}

	assert.Empty(w.t, w.plugins(), "plugins still run")
}

// plugins returns the command lines of the plugins that run for this world.
func (w *world) plugins() []string {
	var running []string

	for _, words := range w.commandLines() {
		if line := strings.Join(words, " "); strings.Contains(line, "pulumi-resource-") {
			running = append(running, line)
		}
	}

	return running
}

// requireComplete checks that a stack with one control plane and two workers exists once and in full, and can be
// destroyed.
func (w *world) requireComplete(stack string) {
	w.t.Helper()

	assert.Equal(w.t, map[string]int{"one-cp-1": 2000, "one-general-1": 3000, "one-general-2": 3001}, w.machines())
	w.requireRunning(3)

	w.up(stack, optup.ExpectNoChanges())
	w.destroy(stack)
	w.requireEmpty()
}

// commandLines returns the command lines of the processes that this world's runs have started, by PID.
func (w *world) commandLines() map[int][]string {
	lines := map[int][]string{}

	folders, err := filepath.Glob("/proc/[0-9]*/cwd")
	assert.NoError(w.t, err)

	for _, folder := range folders {
		if target, err := os.Readlink(folder); err != nil || target != filepath.Join(w.dir, "work") {
			continue
		}

		line, _ := os.ReadFile(filepath.Join(filepath.Dir(folder), "cmdline"))
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(folder))); err == nil {
			lines[pid] = strings.Split(string(line), "\x00")
		}
	}

	return lines
}

// processes returns the PIDs of a program that this world's runs have started; of these verbs, where some are named.
func (w *world) processes(program string, verbs ...string) []int {
	var found []int

	for pid, words := range w.commandLines() {
		if filepath.Base(words[0]) == program &&
			(len(verbs) == 0 || slices.Contains(verbs, words[min(1, len(words)-1)])) {
			found = append(found, pid)
		}
	}

	return found
}

// killProgram kills a program's processes without a chance to clean up.
func (w *world) killProgram(program string, verbs ...string) {
	found := w.processes(program, verbs...)
	assert.NotEmpty(w.t, found, program)
	w.killProcesses(found)
}
