package engine_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource/urn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/operations"
	"talos-proxmox/internal/scripttest"
	"talos-proxmox/lab/datacentre"
)

// pulumi runs the Pulumi CLI in the stack's folder, as a user does, and returns its output.
func (w *world) pulumi(arguments ...string) (string, error) {
	w.t.Helper()

	cmd := exec.CommandContext(w.t.Context(), w.options.CLI.Path, arguments...)
	cmd.Dir, cmd.Env = filepath.Join(w.dir, "work"), w.userEnvironment()
	out, err := cmd.CombinedOutput()
	_, _ = w.Write(out)

	return string(out), err
}

// TestAHostIsLost loses a host with a control plane and a worker for good: status says what is needed, and one command
// creates both anew on the remaining host, as the same nodes, once nobody has the host any more. It is killed on the
// way.
func TestAHostIsLost(t *testing.T) {
	t.Parallel()

	w, s := upOne(t, 3, 2)
	file := s.yaml(t)

	w.addFault(datacentre.Fault{NoPower: true, Host: "pve2"})

	const offline = "pve2: the host is offline, with one-cp-2, one-general-2 on it; etcd of cluster one has its majority (2 of 3 " +
		"members: one-cp-1, one-cp-3); if it comes back, wait: its machines start with it; only if it is gone for good: " +
		"talos-proxmox replace lab --host pve2 (docs/recovery.md#a-host-is-lost)"

	require.Eventually(t, func() bool { // it may have to elect a leader
		report, status := w.clusterStatus()

		return status == operations.StatusAttention && slices.Contains(report.Care.Lines(), offline)
	}, within, time.Millisecond, "%s", w.output())

	// Nothing is replaced while the old machines could come back.
	out, err := w.tryReplace(file, "one-general-2")
	require.Error(t, err)
	assert.Contains(t, out, "one-general-2 (VM 3001) is on pve2, which is offline: Proxmox can neither stop nor delete it")

	out, err = w.tryReplace(file, "--host", "pve2")
	require.Error(t, err)
	assert.Contains(t, out, "the stack file still has pve2: remove these, so that its machines are planned on other hosts, then run the "+
		"same again: hosts[1].name")

	s.OneHost = true
	file = s.yaml(t)

	out, err = w.tryReplace(file, "--host", "pve2")
	require.Error(t, err)
	assert.Contains(t, out, "Proxmox' cluster still has the configurations of one-cp-2 (VM 2001), one-general-2 (VM 3001), ")

	for _, vm := range w.lab.Data.VMs() { // `rm -r /etc/pve/nodes/pve2`
		if vm.Host == "pve2" {
			w.requireTask(w.lab.Data.DestroyVM(labRoot, vm.Host, vm.ID, nil))
		}
	}

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()

	w.when(ctx, func(w *world) bool { return w.machines()["one-cp-2"] != 0 }, func() { w.killEngine(true) })

	out, err = w.tryReplace(file, "--host", "pve2")
	require.Error(t, err, out)
	assert.Contains(t, out, "  one-cp-2 (VM 2001) is created on pve1, as the same node\n")
	assert.Contains(t, out, "  the state forgets what was the host's own: ")
	assert.Empty(t, w.hostURNs("pve2"))

	_, err = w.tryReplace(file, "--host", "pve2")
	require.Error(t, err, "the killed run has left its lock")
	w.recover()

	out, err = w.tryReplace(file, "--host", "pve2")
	require.NoError(t, err, out)
	w.requireRunning(5)
	w.requireMembers(3)

	w.up(file, optup.Refresh(), optup.ExpectNoChanges())

	report, status := w.clusterStatus()
	assert.Zero(t, status, "%v", report.Care.Lines())
}

// TestReplacedNode replaces a dead worker with a local volume, which must be named, and a control plane that runs.
func TestReplacedNode(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	s := w.stack(3, 1)
	s.Clusters[0].WorkerYAML = `patches: ["{apiVersion: v1alpha1, kind: UserVolumeConfig, name: local, volumeType: directory}"]`
	file := s.yaml(t)
	w.up(file)

	boots := w.bootTimes()

	out, err := w.tryReplace(file, "one-general-7")
	require.Error(t, err)
	assert.Contains(t, out, `"one-general-7" is no node of stack lab: name one of one-cp-1, one-cp-2, one-cp-3, one-general-1`)

	w.stopVM(w.vm("one-general-1").ID)

	out, err = w.tryReplace(file, "one-general-1")
	require.Error(t, err)
	assert.Contains(t, out, "one-general-1: VM 3000 on "+w.hostOf(3000)+" (stopped)\n")
	assert.Contains(t, out, "nothing was changed: these volumes would be lost. Save what you need of them; then, to lose them, repeat "+
		"with --lose-volumes one-general-1/local\n")
	assert.NotContains(t, w.tasksOf(3000), "qmdestroy")

	out, err = w.tryReplace(file, "one-general-1", "--lose-volumes", "one-general-1/local")
	require.NoError(t, err, out)
	w.requireRunning(4)

	out, err = w.tryReplace(file, "one-cp-3")
	require.NoError(t, err, out)
	assert.Contains(t, out, "one-cp-3: VM 2002 on "+w.hostOf(2002)+" (running)\n")
	assert.Contains(t, out, "  etcd keeps its majority: one-cp-1, one-cp-2 of 3 members\n")
	w.requireMembers(3)

	now := w.bootTimes()
	assert.Equal(t, boots["one-cp-1"], now["one-cp-1"])
	assert.NotEqual(t, boots["one-cp-3"], now["one-cp-3"])
	w.up(file, optup.Refresh(), optup.ExpectNoChanges())

	report, status := w.clusterStatus()
	assert.Zero(t, status, "%v", report.Care.Lines())

	// Proxmox does not answer: nothing is replaced, and status does not claim to know.
	w.addFault(datacentre.Fault{Method: "GET", Path: "^/nodes$", Status: 403, Message: "Permission check failed"})

	out, err = w.tryReplace(file, "one-cp-3")
	require.Error(t, err)
	assert.Contains(t, out, "nothing is replaced without Proxmox' word that the old machine is off")

	report, _ = w.clusterStatus()
	require.Len(t, report.Placement.NotAsked, 1)
	assert.Contains(t, report.Placement.NotAsked[0], "where machines are, and whether their hosts are online: ")
}

// tryReplace runs `talos-proxmox replace --yes` as a user of this stack file does, and returns its output.
func (w *world) tryReplace(file string, arguments ...string) (string, error) {
	w.t.Helper()

	cmd := w.engineCommand(file, append([]string{"replace", w.options.Stack, "--yes"}, arguments...)...)
	out, err := cmd.CombinedOutput()
	_, _ = w.Write(out)

	return string(out), err
}

// engineCommand returns a command of talos-proxmox that runs the engine, as a user of this stack file calls it.
func (w *world) engineCommand(file string, arguments ...string) *exec.Cmd {
	w.t.Helper()

	e := w.engine(file)
	defer e.Close()

	cli := w.options.CLI
	defer func() { w.options.CLI = cli }()

	w.options.CLI.Path = filepath.Join(w.dir, "replace.sh")
	scripttest.Program(w.t, w.options.CLI.Path, fmt.Sprintf(`#!/bin/sh
case $1 in up|preview) set -- "$@" --client=%s;; esac
exec %s "$@"
`, w.newLanguageHost().address, cli.Path))

	cmd := w.command(append(arguments, "--directory", w.t.TempDir())...)
	stack := e.Stack()

	for name, value := range stack.Workspace().GetEnvVars() {
		cmd.Env = append(cmd.Env, name+"="+value)
	}

	return cmd
}

// hostURNs returns the URNs of the state's resources about a host itself, as `pulumi stack --show-urns` shows them.
func (w *world) hostURNs(host string) []string {
	w.t.Helper()

	out, err := w.pulumi("stack", "--show-urns", "--stack", w.options.Stack)
	require.NoError(w.t, err)

	var urns []string

	for field := range strings.FieldsSeq(out) {
		u := urn.URN(field)
		if u.IsValid() && strings.Contains(u.Name(), host) && !strings.HasPrefix(string(u.Type()), "talos-proxmox:") {
			urns = append(urns, field)
		}
	}

	return urns
}

// TestALostStateDestroysNothing: a stack whose state was lost, or that was brought up from another backend, finds
// machines that are its own by name. None of them is removed, whatever the user asks for.
func TestALostStateDestroysNothing(t *testing.T) {
	t.Parallel()

	w, s := upOne(t, 1, 1)

	boots := w.bootTimes()
	kept := filepath.Join(t.TempDir(), "lab.json")
	_, err := w.pulumi("stack", "export", "--stack", w.options.Stack, "--file", kept)
	require.NoError(t, err)
	w.loseState()

	// A preview refuses and explains; `recover` does not know the cluster.
	_, err = w.preview(s.yaml(t))
	require.Error(t, err)
	assert.Contains(t, w.output(), "the state was lost, or this is another backend")
	assert.NotContains(t, w.output(), "talos-proxmox recover lab --vmid")

	out, err := w.tryRecover("--yes", "--vmid", "3000", "--confirm", "one-general-1")
	require.Error(t, err)
	assert.Contains(t, out, `the state of stack "lab" has nothing of cluster one, whose machine VM 3000 one-general-1 is`)

	// An up without a preview creates other secrets, with which the state knows the cluster. The machines are not its own.
	_, err = w.tryUp(t.Context(), s.yaml(t))
	require.Error(t, err)
	assert.Contains(t, w.state(s.yaml(t)), "one-secrets")

	out, err = w.tryRecover("--yes", "--vmid", "3000,2000")
	require.NoError(t, err, out)
	assert.Contains(t, out, "is left alone: stack organization/talos-proxmox/lab (id=")

	// Descriptions of earlier versions have no id.
	for _, vmid := range []int{2000, 3000} {
		vm, ok := w.lab.Data.VM(vmid)
		require.True(t, ok)

		_, about, _ := strings.Cut(vm.Config["description"], " (")
		require.NoError(t, w.lab.Data.SetConfig(labRoot, vm.Host, vmid, datacentre.Config{
			"description": "talos-proxmox-node owner=organization/talos-proxmox/lab (" + about,
		}))
	}

	out, err = w.tryRecover("--yes", "--vmid", "3000,2000")
	require.Error(t, err)
	assert.Contains(t, out, "VM 2000 one-cp-1 on "+w.hostOf(2000)+" (running) may be in use: it runs")
	assert.Contains(t, out, "VM 3000 one-general-1 on "+w.hostOf(3000)+" (running) may be in use: it runs")
	assert.Equal(t, boots, w.bootTimes())

	// The state is restored, and everything is as it was.
	out, err = w.pulumi("stack", "import", "--stack", w.options.Stack, "--file", kept)
	require.NoError(t, err, out)
	w.up(s.yaml(t), optup.Refresh())
	assert.Equal(t, boots, w.bootTimes())
	w.requireMembers(1)

	_, status := w.clusterStatus()
	assert.Zero(t, status)
}

// TestAPassphraseIsLost: the state exists, and nobody can decrypt its secrets. With the exported machine secrets the
// stack continues with its machines.
func TestAPassphraseIsLost(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	d := newDrill(t, w)
	s := w.stack(1, 1)
	file := d.withBackups(s.yaml(t))
	w.up(file)

	out, err := w.runCommand("secrets", "export", w.options.Stack)
	require.NoError(t, err, out)

	exported, err := filepath.Glob(filepath.Join(d.folder, "lab-one-secrets-*.age"))
	require.NoError(t, err)
	require.Len(t, exported, 1)

	// Only the backend's file is left: the CLI cannot export without the passphrase.
	state := filepath.Join(t.TempDir(), "lab.json")
	backend := filepath.Join(w.dir, "state", ".pulumi")
	content, err := os.ReadFile(filepath.Join(backend, "stacks", "talos-proxmox", "lab.json"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(state, content, 0o600))
	require.NoError(t, os.RemoveAll(backend))
	require.NoError(t, os.RemoveAll(filepath.Join(w.dir, "work"))) // with the stack file and its salt
	require.NoError(t, os.WriteFile(filepath.Join(w.dir, "passphrase"), []byte("another one"), 0o600))

	w.engine(file).Close() // pulumi stack init, and its configuration

	out, err = w.runCommand("secrets", "reseal", w.options.Stack, state, "one="+exported[0], "--identities", d.keyFile(d.etcdKey))
	require.Error(t, err)
	assert.Contains(t, out, "unable to decrypt")

	out, err = w.runCommand("secrets", "reseal", w.options.Stack, state, "one="+exported[0], "--identities", d.keyFile(d.secretsKey))
	require.NoError(t, err, out)
	assert.NotContains(t, out, "PRIVATE KEY")

	// The outputs are lost, and without etcd the next up could not make them again: status and restore need none.
	before, _ := w.clusterStatus()
	assert.Subset(t, before.Care.Lines(), []string{
		"kubeconfig: the stack's outputs have none, as after secrets reseal: pulumi up writes it",
		"talosconfig: the stack's outputs have none, as after secrets reseal: pulumi up writes it",
	})
	require.Len(t, before.Members, 1)
	assert.NotEmpty(t, before.Nodes[0].Ready, "the API of Kubernetes answers")

	empty := filepath.Join(t.TempDir(), "snapshot")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))

	out, err = w.runCommand("restore", w.options.Stack, empty, "--confirm", "one")
	require.Error(t, err)
	assert.Contains(t, out, "the snapshot is empty")

	done := w.up(file)
	assert.Empty(t, vms(slices.Concat(done.withOp("create"), done.withOp("update"), done.withOp("delete-replaced"))))
	assert.Equal(t, "update", done["Command one-bootstrap"], "the cluster counts as bootstrapped, and is not bootstrapped empty")
	w.requireRunning(2)
	w.up(file, optup.Refresh(), optup.ExpectNoChanges())
	w.requireMembers(1)

	report, _ := w.clusterStatus()
	assert.Equal(t, []string{
		"backup: there is no snapshot of etcd in " + d.folder + ": talos-proxmox backup etcd takes one",
	}, report.Care.Lines())
	assert.Empty(t, w.drift())
}
