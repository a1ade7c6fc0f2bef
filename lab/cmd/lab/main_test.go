package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// command is the built lab command with a folder and a network of its own.
type command struct {
	t       *testing.T
	path    string
	dir     string
	network string
}

const project = "../../.."

func build(t *testing.T, network string) *command {
	t.Helper()

	dir, err := os.MkdirTemp("", "labcmd") //nolint:usetesting // a socket's path is limited: t.TempDir's are too long
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })

	path := filepath.Join(dir, "lab")
	out, err := exec.Command("go", "build", "-o", path, ".").CombinedOutput()
	require.NoError(t, err, string(out))

	c := &command{t: t, path: path, dir: filepath.Join(dir, "world"), network: network}
	t.Cleanup(func() { _ = c.command("stop").Run() })

	return c
}

func (c *command) command(args ...string) *exec.Cmd {
	args = append(args, "--project", project, "--dir", c.dir)

	return exec.Command(c.path, args...)
}

func (c *command) run(args ...string) string {
	c.t.Helper()

	out, err := c.command(args...).CombinedOutput()
	require.NoError(c.t, err, "lab %s: %s", strings.Join(args, " "), out)

	return string(out)
}

func (c *command) fails(code int, args ...string) string {
	c.t.Helper()

	out, err := c.command(args...).CombinedOutput()
	exit := new(exec.ExitError)
	require.ErrorAs(c.t, err, &exit, string(out))
	require.Equal(c.t, code, exit.ExitCode(), string(out))

	return string(out)
}

// TestCommand does with the built command what a newcomer does, stack lab as it is committed.
func TestCommand(t *testing.T) {
	t.Parallel()

	c := build(t, "127.180")

	assert.Contains(t, c.fails(1, "status"), "no lab runs here; `.bin/lab start` starts it")
	assert.Regexp(t, `(?s)POST +/nodes/\{node\}/qemu\n.*\n\d+ methods\n`, c.run("status", "--coverage"), "needs no running lab")
	assert.Contains(t, c.fails(1, "up"), "no lab runs here")
	assert.Contains(t, c.run("stop"), "No lab runs.")
	assert.Contains(t, c.fails(1, "start", "--network", "10.0"), "not the first half of a loopback address")

	gitBefore := status(t)

	assert.Contains(t, c.run("start", "--network", c.network, "--speed", "60"), "The lab runs")
	assert.Contains(t, c.run("start", "--network", c.network), "already runs")

	other := &command{t: t, path: c.path, dir: c.dir + "2", network: c.network}
	t.Cleanup(func() { _ = other.command("stop").Run() })

	assert.Contains(t, c.run("preview"), "+ 2", "nothing of a preview shown")
	c.previewsAll()

	assert.Contains(t, c.run("up", "--stack", "dev"), "kubectl get nodes", "a stack for real hardware comes up on stand-in hosts")
	c.run("destroy", "--stack", "dev")

	// A killed run (the providers die with it) and one more that finishes the job.
	up := c.command("up")
	require.NoError(t, up.Start())

	require.Eventually(t, func() bool {
		return strings.Contains(c.run("status"), "locked (clone)")
	}, time.Minute, 50*time.Millisecond, "no clone seen")
	require.NoError(t, up.Process.Signal(syscall.SIGKILL))
	_ = up.Wait()

	var out bytes.Buffer

	again := c.command("up")
	again.Stdout, again.Stderr = &out, &out
	require.NoError(t, again.Run(), out.String())
	assert.Contains(t, out.String(), "kubectl get nodes")

	table := c.run("status")
	assert.Equal(t, 10, strings.Count(table, " running "), table) // five VMs and their machines
	assert.Contains(t, other.fails(1, "start", "--network", c.network), "are taken: another lab or program uses them", "a second lab on the same addresses")

	for _, file := range []string{"kubeconfig", "talosconfig", "passphrase", "identity.json", "datacentre.json"} {
		info, err := os.Stat(filepath.Join(c.dir, file))
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o600), info.Mode().Perm(), file)
	}

	assert.Contains(t, c.run("fault", "add", "--task", "qmstart", "--message", "no luck", "--times", "1"), "Fault 1 is set")
	assert.Contains(t, c.run("fault", "list"), "no luck")
	assert.Contains(t, c.run("fault", "clear"), "All faults are gone")

	c.run("refresh")
	c.run("destroy")
	assert.NotContains(t, c.run("status"), "running")
	assert.Contains(t, c.run("stop"), "The lab has stopped.")
	assert.Equal(t, gitBefore, status(t), "the run touched files of the repository")
}

// previewsAll previews every committed stack: all its machines, on the lab's addresses.
func (c *command) previewsAll() {
	c.t.Helper()

	paths, err := filepath.Glob(filepath.Join(project, "Pulumi.*.yaml"))
	require.NoError(c.t, err)

	for _, path := range paths {
		stack := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), "Pulumi."), ".yaml")
		shown := c.run("preview", "--stack", stack)

		assert.Contains(c.t, shown, stack+"-cp-1", stack)
		assert.Contains(c.t, shown, c.network+".1.", stack)
		assert.NotContains(c.t, shown, "10.0.0.", stack)
	}

	assert.Contains(c.t, c.run("preview", "--stack", "prod"), "prod-cp-3")
	assert.Regexp(c.t, `pve3 +`+c.network+`\.0\.13`, c.run("status"), "as many hosts as the stacks name")
}

func status(t *testing.T) string {
	t.Helper()

	out, err := exec.Command("git", "-C", project, "status", "--porcelain").Output()
	require.NoError(t, err)

	return string(out)
}
