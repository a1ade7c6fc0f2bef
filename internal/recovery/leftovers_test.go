package recovery_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/recovery"
)

// TestMain lets the test program stand in for plugins and the CLI: under their names it runs until it is killed. With
// STUBBORN it ignores SIGTERM; with PLUGIN it starts that program, with its own arguments.
func TestMain(m *testing.M) {
	switch name := filepath.Base(os.Args[0]); {
	case strings.HasPrefix(name, "pulumi"):
		if os.Getenv("STUBBORN") != "" {
			signal.Ignore(syscall.SIGTERM)
		}

		if plugin := os.Getenv("PLUGIN"); plugin != "" {
			cmd := exec.CommandContext(context.Background(), plugin, os.Args[1:]...)
			cmd.Env, cmd.Stdout = []string{}, os.Stdout
			_ = cmd.Run()

			os.Exit(1)
		}

		fmt.Println("ready")

		select {}
	default:
		os.Exit(m.Run())
	}
}

// programNamed returns this program under another name.
func programNamed(t *testing.T, name string) string {
	t.Helper()

	self, err := os.Executable()
	require.NoError(t, err)

	link := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.Symlink(self, link))

	return link
}

// startProcess runs this program under another name in a folder.
func startProcess(t *testing.T, folder, name string, environment []string, args ...string) *exec.Cmd {
	t.Helper()

	cmd := exec.CommandContext(t.Context(), programNamed(t, name), args...)

	cmd.Dir, cmd.Env, cmd.SysProcAttr = folder, append(os.Environ(), environment...), &syscall.SysProcAttr{Setpgid: true}
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	})

	_, err = bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)

	return cmd
}

func hasEnded(cmd *exec.Cmd) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid))

	return err != nil || strings.Contains(string(stat), ") Z ")
}

func TestRunEndsPluginsWithoutAnEngine(t *testing.T) {
	t.Parallel()

	// Something else listens at the address of the engine that has ended.
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })

	engine := listener.Addr().String()

	w := newFixture(t)
	left := startProcess(t, w.project, "pulumi-resource-proxmoxve", nil, "-v=3", engine)
	stubborn := startProcess(t, w.project, "pulumi-resource-command", []string{"STUBBORN=1"}, engine)
	pack := startProcess(t, w.project, "pulumi-analyzer-policy-go", nil, engine, w.project)
	startProcess(t, w.project, "pulumi", []string{"PLUGIN=" + programNamed(t, "pulumi-resource-talos")}, engine)
	byHand := startProcess(t, w.project, "pulumi-resource-random", nil)
	elsewhere := startProcess(t, t.TempDir(), "pulumi-resource-proxmoxve", nil, engine)

	require.NoError(t, w.run(nil))
	assert.True(t, hasEnded(left))
	assert.True(t, hasEnded(stubborn))
	assert.True(t, hasEnded(pack))
	assert.False(t, hasEnded(byHand), "no engine started it")
	assert.False(t, hasEnded(elsewhere), "it is of another project")
	assert.Contains(t, w.out.String(), fmt.Sprintf("pulumi-resource-proxmoxve (process %d) is ended", left.Process.Pid))
	assert.NotContains(t, w.out.String(), "pulumi-resource-talos", "its engine lives")
}

func TestRunRefusesWhileARunIsUnderWay(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		args    []string
		refuses bool
	}{
		"an up of the stack":            {args: []string{"up", "--yes", "--stack", "prod"}, refuses: true},
		"of the stack by its full name": {args: []string{"destroy", "--stack=acme/talos-proxmox/prod"}, refuses: true},
		"of the selected stack":         {args: []string{"refresh"}, refuses: true},
		"an up of another stack":        {args: []string{"up", "-s", "dev"}},
		"a command that changes nothing": {
			args: []string{"stack", "output", "--stack", "prod"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFixture(t)
			run := startProcess(t, w.project, "pulumi", nil, test.args...)

			err := w.run(nil)
			if !test.refuses {
				require.NoError(t, err)

				return
			}

			require.ErrorIs(t, err, recovery.ErrUnderWay)
			assert.ErrorContains(t, err, fmt.Sprintf("process %d", run.Process.Pid))
			assert.Empty(t, w.calls)
		})
	}
}

func TestRunRepairsAFileBackend(t *testing.T) {
	t.Parallel()

	const whole, half = `{"version": 3}`, `{"vers`
	for name, test := range map[string]struct {
		files  map[string]string // before
		after  map[string]string // "" = is gone
		output string
		fails  string
	}{
		"a whole state stays": {
			files: map[string]string{"": whole, ".bak": `{"version": 2}`, ".attrs": "{}"},
			after: map[string]string{"": whole, ".attrs": "{}"},
		},
		"a half-written state": {
			files:  map[string]string{"": half, ".bak": whole},
			after:  map[string]string{"": whole, ".bak": whole},
			output: "the state was half-written and is restored from its backup",
		},
		"an empty state": {
			files:  map[string]string{"": "", ".bak": whole},
			after:  map[string]string{"": whole},
			output: "is restored from its backup",
		},
		"half-written attributes": {
			files:  map[string]string{"": whole, ".attrs": ""},
			after:  map[string]string{"": whole, ".attrs": ""},
			output: "half-written attributes of the state were removed",
		},
		"the first state there was": {
			files: map[string]string{"": half}, after: map[string]string{"": ""}, output: "pulumi stack init prod starts over",
		},
		"a backup that is half-written, too": {
			files: map[string]string{"": half, ".bak": half},
			after: map[string]string{"": half},
			fails: "is whole: restore one of `talos-proxmox backup state`",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFixture(t)
			folder := filepath.Join(t.TempDir(), ".pulumi", "stacks", "talos-proxmox")
			require.NoError(t, os.MkdirAll(folder, 0o700))

			state := filepath.Join(folder, "prod.json")
			for suffix, content := range test.files {
				require.NoError(t, os.WriteFile(state+suffix, []byte(content), 0o600))
			}

			err := w.run(func(o *recovery.Options) {
				pulumi := o.Pulumi
				o.Pulumi = func(ctx context.Context, stdin io.Reader, args ...string) ([]byte, error) {
					if args[0] == "whoami" {
						return fmt.Appendf(nil, `{"url": "file://%s"}`, strings.TrimSuffix(folder, "/.pulumi/stacks/talos-proxmox")), nil
					}

					return pulumi(ctx, stdin, args...)
				}
			})
			if test.fails != "" {
				require.ErrorContains(t, err, test.fails)
			} else {
				require.NoError(t, err)
			}

			assert.Contains(t, w.out.String(), test.output)

			for suffix, content := range test.after {
				b, err := os.ReadFile(state + suffix)
				if content == "" {
					require.ErrorIs(t, err, os.ErrNotExist)

					continue
				}

				require.NoError(t, err)
				assert.Equal(t, content, string(b))
			}
		})
	}
}
