package engine_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/engine"
	"talos-proxmox/lab/providers"
)

// needsLanguageHost skips what runs the program as a user does, where Pulumi's language host for Go is not installed.
func needsLanguageHost(t testing.TB) {
	t.Helper()

	if _, err := exec.LookPath("pulumi-language-go"); err != nil {
		t.Skip("needs pulumi-language-go on PATH: the release of the Pulumi CLI has it")
	}
}

// asUser runs a command of the CLI on the engine's stack as a user does: it starts the program by Pulumi's own language
// host, and the published plugins, where they are chosen, as their own processes.
func (w *world) asUser(e *engine.Engine, command ...string) (string, error) {
	w.t.Helper()

	stack := e.Stack()
	args := append(command, "--stack", w.options.Stack, "--config-file",
		filepath.Join(stack.Workspace().WorkDir(), "Pulumi."+w.options.Stack+".yaml"), "--parallel", "64")

	return w.inFolder(e, project, args...)
}

// inFolder runs a command of the CLI in a folder, with the state and the providers of an engine.
func (w *world) inFolder(e *engine.Engine, folder string, command ...string) (string, error) {
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

// TestTheProgramIsLinkedOnce runs the program twice as a user does: the second run takes what the first one linked,
// which is most of a start's time.
func TestTheProgramIsLinkedOnce(t *testing.T) {
	needsLanguageHost(t)
	t.Parallel()

	w := newWorld(t, testSpeed)
	e := w.engine(stack{Network: w.network, Clusters: []cluster{one(1, 0)}}.yaml(t))
	t.Cleanup(e.Close)

	program := filepath.Join(project, ".bin", "program")

	output, err := w.asUser(e, "preview")
	require.NoError(t, err, output)

	linked, err := os.Open(program) // open, so that no other file takes its place by chance
	require.NoError(t, err)

	defer linked.Close()

	before, err := linked.Stat()
	require.NoError(t, err)

	output, err = w.asUser(e, "preview")
	require.NoError(t, err, output)

	after, err := os.Stat(program)
	require.NoError(t, err)
	require.True(t, os.SameFile(before, after), "the second run has linked the program again")
}

// BenchmarkAsUser measures what a user waits for who starts the CLI on a stack of 3 + 47 nodes that is as it should be:
// wall time, which is worth something on an idle machine only, processor time of everything that takes part, and
// requests to Proxmox.
func BenchmarkAsUser(b *testing.B) {
	needsLanguageHost(b)

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

	for name, command := range commands { // what only the first run does is not measured
		output, err := w.asUser(e, command...)
		require.NoError(b, err, "%s: %s", name, output)
	}

	for b.Loop() {
		const rounds = 3

		for name, command := range commands {
			wall, cpu := 0.0, 0.0
			asked := w.requests().proxmox

			for round := range rounds {
				begin, used := time.Now(), cpuSeconds()
				output, err := w.asUser(e, command...)
				require.NoError(b, err, "%s: %s", name, output)
				require.True(b, strings.Contains(output, " unchanged"), "%s is not unchanged: %s", name, output)

				thisWall, thisCPU := time.Since(begin).Seconds(), cpuSeconds()-used
				if round == 0 || thisWall < wall {
					wall = thisWall
				}

				if round == 0 || thisCPU < cpu {
					cpu = thisCPU
				}
			}

			b.ReportMetric(wall, "s-"+name)
			b.ReportMetric(cpu, "cpu-s-"+name)
			b.ReportMetric((w.requests().proxmox-asked)/rounds, fmt.Sprintf("proxmox-requests-%s", name))
		}
	}
}
