package engine_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource/urn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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

// TestAHostIsLost loses a host with a control plane and a worker for good: the commands in docs/recovery.md create both
// anew on the remaining host, as the same nodes.
func TestAHostIsLost(t *testing.T) {
	t.Parallel()

	w, s := upOne(t, 3, 2)

	for _, vm := range w.lab.Data.VMs() { // `pvecm delnode pve2`, and its folder below /etc/pve/nodes removed
		if vm.Host == "pve2" && !vm.Template {
			w.removeVM(vm.ID)
		} else if vm.Host == "pve2" {
			w.requireTask(w.lab.Data.DestroyVM(labRoot, vm.Host, vm.ID, nil))
		}
	}

	w.addFault(datacentre.Fault{Offline: true, Host: "pve2"})

	s.OneHost = true

	// The nodes come back elsewhere; the resources of the host itself cannot be deleted.
	done, err := w.tryUp(t.Context(), s.yaml(t), optup.Refresh())
	require.Error(t, err)
	assert.Equal(t, []string{"VirtualMachine one-cp-2-vm", "VirtualMachine one-general-2-vm"}, vms(done.withOp("create")))
	w.requireRunning(5)
	w.requireMembers(3)

	urns := w.hostURNs("pve2")
	require.NotEmpty(t, urns)

	for _, lost := range urns {
		out, err := w.pulumi("state", "delete", "--yes", "--stack", w.options.Stack, lost)
		require.NoError(t, err, out)
	}

	w.up(s.yaml(t), optup.Refresh())
	w.up(s.yaml(t), optup.Refresh(), optup.ExpectNoChanges())
	w.requireMembers(3)

	report, status := w.clusterStatus()
	assert.Zero(t, status, "%v", report.Care.Lines())
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
