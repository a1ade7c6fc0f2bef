package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// command is the built lab command with its own folder and network.
type command struct {
	t       *testing.T
	path    string
	dir     string
	network string
}

const project = "../../.."

func newCommand(t *testing.T, network string) *command {
	t.Helper()

	dir, err := os.MkdirTemp("", "labcmd") //nolint:usetesting // a socket's path is limited: t.TempDir's are too long
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })

	path, err := filepath.Abs(filepath.Join(project, ".bin", "lab"))
	require.NoError(t, err)
	require.FileExists(t, path, "`make tools` builds it")

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

// TestCommand runs the built command like a newcomer, with the committed stack lab.
func TestCommand(t *testing.T) {
	t.Parallel()

	c := newCommand(t, "127.180")

	assert.Contains(t, c.fails(1, "status"), "no lab runs here; `.bin/lab start` starts it")
	assert.Regexp(
		t, `(?s)POST +/nodes/\{node\}/qemu\n.*\n\d+ methods\n`, c.run("status", "--coverage"), "needs no running lab",
	)
	assert.Contains(t, c.fails(1, "up"), "no lab runs here")
	assert.Contains(t, c.run("stop"), "No lab runs.")
	assert.Contains(t, c.fails(1, "start", "--network", "10.0"), "not the first half of a loopback address")

	gitBefore := status(t)

	assert.Contains(t, c.run("start", "--network", c.network, "--speed", "60"), "The lab runs")
	assert.Contains(t, c.run("start", "--network", c.network), "already runs")

	other := &command{t: t, path: c.path, dir: c.dir + "2", network: c.network}
	t.Cleanup(func() { _ = other.command("stop").Run() })

	assert.Regexp(t, `\+ \d+ to create`, c.run("preview"), "nothing of a preview shown")
	c.previewsAll()

	dev := c.run("up", "--stack", "dev")
	assert.Contains(t, dev, "kubectl get nodes", "a stack for real hardware comes up on stand-in hosts")
	assert.Contains(t, dev, "The lab's Kubernetes is a model: stack dev runs without clusters[0].cni")
	c.run("destroy", "--stack", "dev")

	// A killed run, whose providers die with it, and a second one that completes it.
	up := c.command("up")
	require.NoError(t, up.Start())

	require.Eventually(t, func() bool {
		return strings.Contains(c.run("status"), "lab-cp-1")
	}, 5*time.Minute, 50*time.Millisecond, "no machine seen")
	require.NoError(t, up.Process.Signal(syscall.SIGKILL))
	_ = up.Wait()

	var out bytes.Buffer

	again := c.command("up")
	again.Stdout, again.Stderr = &out, &out
	require.NoError(t, again.Run(), out.String())
	assert.Contains(t, out.String(), "kubectl get nodes")
	assert.Contains(t, out.String(), "make up KUBERNETES=real")

	assert.Regexp(t, `lab +https://\S+:6443 +`+c.dir+`/kubeconfig, `+c.dir+`/talosconfig`, out.String())
	assert.NotContains(t, out.String(), "/..")
	assert.Contains(t, c.fails(1, "preview", "--stack", "dev"), "belongs to the stack organization/talos-proxmox/lab ")
	assert.Contains(t, c.run("output"), `"kubeconfigs": "[secret]"`)
	assert.Contains(t, c.run("output", "kubeconfigs"), "client-key-data")
	assert.Contains(t, c.run("output", "readme"), "# Stack lab\n")
	assert.Contains(
		t, c.fails(1, "output", "kubeconfig"), `stack "lab" has no output "kubeconfig", but addresses, endpoints, `,
	)

	c.configures()

	table := c.run("status")
	assert.Equal(t, 14, strings.Count(table, " running "), table) // eight VMs, and the six that run Talos
	assert.Contains(
		t, other.fails(1, "start", "--network", c.network), "are taken: another lab or program uses them",
		"a second lab on the same addresses",
	)

	private := []string{"kubeconfig", "talosconfig", "passphrase", "identity.json", "datacentre.json", "work/.run/lab.json"}
	for _, file := range private {
		info, err := os.Stat(filepath.Join(c.dir, file))
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o600), info.Mode().Perm(), file)
	}

	c.faults()

	c.run("refresh")
	c.run("destroy")
	assert.NotContains(t, c.run("status"), "running")
	assert.Contains(t, c.run("stop"), "The lab has stopped.")
	assert.Equal(t, gitBefore, status(t), "the run touched files of the repository")
}

// previewsAll previews each committed stack: all machines, on the lab's addresses, from the engine's events.
func (c *command) previewsAll() {
	c.t.Helper()

	paths, err := filepath.Glob(filepath.Join(project, "Pulumi.*.yaml"))
	require.NoError(c.t, err)

	for _, path := range paths {
		stack := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), "Pulumi."), ".yaml")
		log := filepath.Join(c.t.TempDir(), "events")
		c.run("preview", "--event-log", log, "--stack", stack)

		content, err := os.ReadFile(log)
		require.NoError(c.t, err)

		shown := string(content)
		assert.Contains(c.t, shown, stack+"-cp-1", stack)
		assert.Contains(c.t, shown, c.network+".1.", stack)
		assert.NotContains(c.t, shown, "10.0.0.", stack)
	}

	assert.Contains(c.t, c.run("preview", "--stack", "prod"), "prod-cp-3")
	assert.Regexp(c.t, `pve3 +`+c.network+`\.0\.13`, c.run("status"), "as many hosts as the stacks name")
}

// configures writes the stack's file for commands that read it between runs, but not during a run.
func (c *command) configures() {
	c.t.Helper()

	path := filepath.Join(c.dir, "work", "Pulumi.lab.yaml")
	current, err := os.ReadFile(path)
	require.NoError(c.t, err)

	require.NoError(c.t, os.WriteFile(path, []byte("of another run\n"), 0o600))
	require.NoError(c.t, os.WriteFile(filepath.Join(c.dir, "work", "configured"), []byte("of another run"), 0o600))

	lock, err := os.Open(filepath.Join(c.dir, "run.lock"))
	require.NoError(c.t, err)

	defer lock.Close()

	require.NoError(c.t, syscall.Flock(int(lock.Fd()), syscall.LOCK_EX))
	assert.Empty(c.t, c.run("configure"))
	assert.Equal(c.t, "of another run\n", read(c.t, path))

	require.NoError(c.t, syscall.Flock(int(lock.Fd()), syscall.LOCK_UN))
	assert.Empty(c.t, c.run("configure"))

	// Secrets are re-encrypted with a new salt.
	assert.Equal(c.t, secure.ReplaceAllString(string(current), ""), secure.ReplaceAllString(read(c.t, path), ""))
}

// secure matches the encrypted values of a stack file and their salt.
var secure = regexp.MustCompile(`(?m)(secure|encryptionsalt): .*$`)

func read(t *testing.T, path string) string {
	t.Helper()

	content, err := os.ReadFile(path)
	require.NoError(t, err)

	return string(content)
}

// faults sets a fault of each kind, lists them, clears one and then all.
func (c *command) faults() {
	t := c.t
	t.Helper()

	for i, form := range []struct{ add, listed string }{
		{"--offline --host pve2", `1 +host pve2 +offline +always`},
		{"--no-quorum", `2 +cluster +no quorum +always`},
		{"--full local-lvm --host pve1", `3 +storage local-lvm on pve1 +full +always`},
		{"--lock backup --vmid 3000", `4 +VM 3000 +locked \(backup\) +always`},
		{"--expire-tickets", `5 +sessions +tickets issued before \d\d:\d\d:\d\d have expired +always`},
		{
			"--start-fails --vmid 3000 --times 1", `6 +task qmstart of VM 3000 +fails: start failed: QEMU exited with code 1 +1`,
		},
		{"--task qmclone --delay 5m", `7 +task qmclone +after 5m0s, continues normally +always`},
		{"--task qmcreate --warnings 2 --host pve1", `8 +task qmcreate on pve1 +ends with WARNINGS: 2 +always`},
		{"--path /nodes/pve2/.* --reset", `9 +request /nodes/pve2/\.\* +connection reset before execution +always`},
		{
			"--method POST --path /clone$ --reset --after",
			`10 +request POST /clone\$ +connection reset after execution +always`,
		},
		{
			"--method PUT --path /nowhere --message busy --delay 1s",
			`11 +request PUT /nowhere +after 1s, answers 500 busy +always`,
		},
	} {
		assert.Contains(
			t, c.run(append([]string{"fault", "add"}, strings.Fields(form.add)...)...), fmt.Sprintf("Fault %d is set", i+1),
		)
		assert.Regexp(t, form.listed, c.run("fault", "list"))
	}

	assert.Contains(t, c.run("status"), "locked (backup)")
	assert.Contains(t, c.fails(1, "fault", "add", "--lock", "backup"), "--lock, --hangs, --reverts, --no-network: set --vmid")
	assert.Contains(t, c.fails(1, "fault", "clear", "77"), "fault 77 is not set")
	assert.Contains(t, c.run("fault", "clear", "4"), "Cleared: 4.")
	assert.NotContains(t, c.run("status"), "locked (backup)")
	assert.Contains(t, c.run("fault", "clear"), "All faults are cleared")
	assert.Contains(t, c.run("fault", "list"), "No faults are set")
}

func status(t *testing.T) string {
	t.Helper()

	out, err := exec.Command("git", "-C", project, "status", "--porcelain").Output()
	require.NoError(t, err)

	return string(out)
}
