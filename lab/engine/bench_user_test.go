package engine_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/engine"
	"talos-proxmox/lab/providers"
)

// requireLanguageHost skips the test if Pulumi's language host for Go, which runs a user's program, is not installed.
func requireLanguageHost(t testing.TB) {
	t.Helper()

	if _, err := exec.LookPath("pulumi-language-go"); err != nil {
		t.Skip("needs pulumi-language-go on PATH: the release of the Pulumi CLI has it")
	}
}

// runAsUser runs a command of the CLI on the engine's stack as a user does: the CLI starts the program with Pulumi's
// own language host, and published plugins in their own processes.
func (w *world) runAsUser(e *engine.Engine, command ...string) (string, error) {
	w.t.Helper()

	stack := e.Stack()
	args := append(command, "--stack", w.options.Stack, "--config-file",
		filepath.Join(stack.Workspace().WorkDir(), "Pulumi."+w.options.Stack+".yaml"), "--parallel", "64")

	return w.runIn(e, project, args...)
}

// runIn runs a command of the CLI in a folder, with the state and the providers of an engine.
func (w *world) runIn(e *engine.Engine, folder string, command ...string) (string, error) {
	w.t.Helper()

	stack := e.Stack()
	workspace := stack.Workspace()
	env := append(os.Environ(), "PULUMI_SKIP_UPDATE_CHECK=true", "PULUMI_HOME="+workspace.PulumiHome())

	for name, value := range workspace.GetEnvVars() {
		env = append(env, name+"="+value)
	}

	cmd := exec.CommandContext(w.t.Context(), w.options.CLI.Path, append(command, "--non-interactive")...)
	cmd.Dir, cmd.Env = folder, env
	output, err := cmd.CombinedOutput()

	return string(output), err
}

// TestTheProgramIsLinkedOnce runs the program twice as a user does: the second run reuses the linked program, since
// linking is most of a start's time.
func TestTheProgramIsLinkedOnce(t *testing.T) {
	requireLanguageHost(t)
	t.Parallel()

	w := newWorld(t, testSpeed)
	e := w.engine(w.stack(1, 0).yaml(t))
	t.Cleanup(e.Close)

	program := filepath.Join(project, ".bin", "program")

	output, err := w.runAsUser(e, "preview")
	require.NoError(t, err, output)

	linked, err := os.Open(program) // open, so that no other file takes its place by chance
	require.NoError(t, err)

	defer linked.Close()

	before, err := linked.Stat()
	require.NoError(t, err)

	output, err = w.runAsUser(e, "preview")
	require.NoError(t, err, output)

	after, err := os.Stat(program)
	require.NoError(t, err)
	require.True(t, os.SameFile(before, after), "the second run has linked the program again")
}

// BenchmarkAsUser measures the CLI on an unchanged stack of 3 + 47 nodes as a user runs it: wall time, which is
// meaningful on an idle machine only, processor time of all processes, and requests to Proxmox.
func BenchmarkAsUser(b *testing.B) {
	requireLanguageHost(b)

	if len(providers.Missing()) > 0 {
		b.Skip("needs the published plugins")
	}

	w := newWorld(b, testSpeed)
	w.options.Providers = engine.Published
	file := fleet(w.network, 50).yaml(b)
	w.up(file)

	e := w.engine(file)
	b.Cleanup(e.Close)

	commands := map[string][]string{
		"preview":    {"preview"},
		"up":         {"up", "--yes"},
		"up-refresh": {"up", "--yes", "--refresh"},
		"deploy":     {"up", "--yes", "--refresh", "--skip-preview"},
	}

	for name, command := range commands { // warms up
		output, err := w.runAsUser(e, command...)
		require.NoError(b, err, "%s: %s", name, output)
	}

	for b.Loop() {
		const rounds = 3

		for name, command := range commands {
			quickest, before := newMeasurement(), w.requests().proxmox

			for range rounds {
				quickest.measure(func() {
					output, err := w.runAsUser(e, command...)
					require.NoError(b, err, "%s: %s", name, output)
					require.True(b, strings.Contains(output, " unchanged"), "%s is not unchanged: %s", name, output)
				})
			}

			b.ReportMetric(quickest.wall, "s-"+name)
			b.ReportMetric(quickest.cpu, "cpu-s-"+name)
			b.ReportMetric((w.requests().proxmox-before)/rounds, fmt.Sprintf("proxmox-requests-%s", name))
		}
	}
}
