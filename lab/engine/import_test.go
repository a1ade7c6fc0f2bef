package engine_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"

	"talos-proxmox/lab/datacentre"
)

// TestImport is docs/migration.md: a stack takes over running machines. They keep their disks and their etcd, and
// restart once, in turn.
func TestImport(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	w.putLanguageHostOnPath()

	s := w.stack(3, 1)
	file := func() string { return withoutAgents(s.yaml(t)) }
	w.up(file())

	bundle := w.secretsBundle(w.talosconfig(), w.network+".1.10")
	before, members := w.machineIdentities(), w.etcdMembers()

	w.forgetOwnership()

	s.Template = 950 // the default has templates

	out, err := w.preview(file())
	require.Error(t, err, out.StdOut)
	assert.Contains(t, w.output(), "VM 2000 is one-cp-1 on "+w.hostOf(2000)+", and no stack made it")
	assert.Contains(t, w.output(), "talos-proxmox import "+w.options.Stack)

	// A machine with the VMID and another name is not the planned one.
	w.setVMConfig(3000, datacentre.Config{"name": "someone-elses"})

	_, got, status := w.commandOutput("import", w.options.Stack, "one="+bundle)
	require.NotZero(t, status)
	assert.Contains(t, got, "one-general-1 is planned with VMID 3000, and on Proxmox that is someone-elses")
	assert.NotContains(t, w.state(file()), "one-cp-1-vm")

	w.setVMConfig(3000, datacentre.Config{"name": "one-general-1"})

	added, got, status := w.commandOutput("import", w.options.Stack, "one="+bundle)
	require.Zero(t, status, got)
	assert.Contains(t, added, "one-secrets, one-cp-1-vm, one-cp-2-vm, one-cp-3-vm, one-general-1-vm")

	_, got, status = w.commandOutput("import", w.options.Stack, "one="+bundle)
	assert.NotZero(t, status)
	assert.Contains(t, got, "there is nothing to import")

	w.requireNoSecretOf(bundle)

	done := w.up(file())
	assert.Equal(t, []string{
		"VirtualMachine one-cp-1-vm", "VirtualMachine one-cp-2-vm", "VirtualMachine one-cp-3-vm",
		"VirtualMachine one-general-1-vm",
	}, vms(done.withOp("update")))

	for _, op := range []string{"create", "replace", "create-replacement", "delete", "delete-replaced"} {
		assert.Empty(t, vms(done.withOp(op)), op)
		assert.NotContains(t, done.withOp(op), "Secrets one-secrets")
	}

	assert.Equal(t, before, w.machineIdentities())
	assert.Equal(t, members, w.etcdMembers())
	w.requireRunning(4)
	w.requireMembers(3)

	for name, vmid := range w.machines() {
		assert.Equal(t, []string{"qmstart", "qmreboot"}, w.tasksOf(vmid), "%s restarts once", name)
	}

	w.up(file(), optup.ExpectNoChanges())
	w.up(file(), optup.Refresh(), optup.ExpectNoChanges())

	_, status = w.clusterStatus()
	assert.Zero(t, status)
	assert.Empty(t, w.drift())

	// docs/recovery.md, "The state is lost": the stack is again the owner that its machines and templates name.
	machines := w.lab.Data.VMs()

	w.loseState()

	_, got, status = w.commandOutput("import", w.options.Stack, "one="+bundle)
	require.Zero(t, status, got)
	w.up(file())
	assert.Equal(t, before, w.machineIdentities())
	assert.Equal(t, members, w.etcdMembers())

	for i, vm := range w.lab.Data.VMs() {
		assert.Equal(t, machines[i].Config["description"], vm.Config["description"], vm.Name)
	}
}

// requireNoSecretOf requires that no file that was written has a secret of the bundle.
func (w *world) requireNoSecretOf(bundle string) {
	t := w.t

	text, err := os.ReadFile(bundle)
	require.NoError(t, err)

	keys := regexp.MustCompile(`(?m)^\s+(?:key|secret|token): (\S{20,})$`).FindAllStringSubmatch(string(text), -1)
	require.NotEmpty(t, keys)

	for path, text := range w.writtenFiles() {
		for _, key := range keys {
			assert.False(t, strings.Contains(text, key[1]), "%s has a secret of the bundle", path)
		}
	}
}

// withoutAgents returns a stack that can be imported: the provider waits for the guest agents of machines that it
// imports, for a quarter of an hour, until they report an address that is not loopback.
func withoutAgents(file string) string { return strings.Replace(file, "[qemu-guest-agent]", "[]", 1) }

// TestImportOfGPUs: a stack that has lost its state imports its PCI mapping.
func TestImportOfGPUs(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	w.putLanguageHostOnPath()

	file := gpuStack{Network: w.network, Workers: 1}.yaml(t)
	w.up(file)

	bundle := w.secretsBundle(w.talosconfig(), w.network+".1.10")
	mappings, before := w.lab.Data.Records(datacentre.PCIMappings), w.machineIdentities()

	w.loseState()

	added, got, status := w.commandOutput("import", w.options.Stack, "one="+bundle)
	require.Zero(t, status, got)
	assert.Contains(t, added, "rtx4000-mapping")

	done := w.up(file)
	assert.NotContains(t, done, "Pci rtx4000-mapping", "it is as planned")
	assert.Equal(t, mappings, w.lab.Data.Records(datacentre.PCIMappings))
	assert.Equal(t, before, w.machineIdentities())
	w.requireGPUs("one-gpu-1", 1)
	w.up(file, optup.ExpectNoChanges())
}

// TestImportOfAccounts: a stack that has lost its state imports the accounts of its clusters' software, and creates
// tokens again that were removed as the command advises. The lab's model of Kubernetes takes no Secrets, so that each
// run ends there.
func TestImportOfAccounts(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)

	plain := withoutAgents(w.stack(1, 1).yaml(t))
	file := withProxmox(plain, "{region: homelab, roles: make, csi: {storageClasses: [{name: fast, datastore: local-lvm}]}, cloudController: {}}")
	up := func() steps {
		done, err := w.tryUp(t.Context(), file)
		require.ErrorContains(t, err, "the Kubernetes API refuses it")

		return done
	}

	w.up(plain)
	up()

	users, tokens := w.lab.Data.Records(datacentre.Users), w.lab.Data.Records(datacentre.Tokens)
	rules := append(w.aclsOf("talos-lab-one-csi"), w.aclsOf("talos-lab-one-ccm")...)
	removed := w.importAccounts(t)

	done := up()
	assert.Equal(t, "create", done["Token one-csi-token-1"])

	for _, name := range []string{"User one-csi", "User one-ccm", "Role one-csi-machines", "Role one-csi-storage", "Role one-ccm-machines"} {
		assert.NotContains(t, done, name, "it is as planned")
	}

	assert.Equal(t, users, w.lab.Data.Records(datacentre.Users))
	assert.ElementsMatch(t, rules, append(w.aclsOf("talos-lab-one-csi"), w.aclsOf("talos-lab-one-ccm")...))

	for _, id := range removed {
		assert.NotEqual(t, tokens[id]["value"], w.lab.Data.Records(datacentre.Tokens)[id]["value"])
	}

	done = up()
	assert.Equal(t, "failed", done["Command one-proxmox"])

	for name := range done {
		assert.Regexp(t, "^Command one-(proxmox|healthy|marked|general-1-leave)$", name,
			"only what the model refuses, and what a run that ended there may not have begun")
	}
}

// importAccounts loses the state of a stack whose cluster has accounts, imports it, and removes the tokens that the
// command names.
func (w *world) importAccounts(t *testing.T) (removed []string) {
	t.Helper()

	bundle := w.secretsBundle(w.talosconfig(), w.network+".1.10")

	w.loseState()
	w.putLanguageHostOnPath()

	added, got, status := w.commandOutput("import", w.options.Stack, "one="+bundle)
	require.Zero(t, status, got)

	for _, name := range []string{"one-csi", "one-csi-machines", "one-csi-storage", "one-ccm", "one-ccm-machines"} {
		assert.Regexp(t, `\b`+name+`[,\n]`, added)
	}

	commands := regexp.MustCompile(`(?m)^pveum user token remove (\S+) (\S+)$`).FindAllStringSubmatch(added, -1)
	require.Len(t, commands, 2, added)

	for _, command := range commands {
		id := command[1] + "!" + command[2]
		require.Contains(t, w.lab.Data.Records(datacentre.Tokens), id)
		w.lab.Data.Delete(datacentre.Tokens, id)

		removed = append(removed, id)
	}

	return removed
}

// setVMConfig changes a VM's configuration in Proxmox.
func (w *world) setVMConfig(vmid int, set datacentre.Config) {
	w.t.Helper()
	require.NoError(w.t, w.lab.Data.SetConfig(labRoot, w.hostOf(vmid), vmid, set))
}

// forgetOwnership removes everything by which the stack recognizes its machines, as if Terraform had created them.
func (w *world) forgetOwnership() {
	w.t.Helper()

	for _, vmid := range w.machines() {
		w.setVMConfig(vmid, datacentre.Config{"description": "Managed by Terraform", "tags": "terraform", "onboot": "0"})
	}

	w.loseState()
}

// loseState replaces the stack by an empty one.
func (w *world) loseState() {
	w.t.Helper()
	require.NoError(w.t, os.RemoveAll(filepath.Join(w.dir, "state", ".pulumi")))

	out, err := w.pulumi("stack", "init", w.options.Stack)
	require.NoError(w.t, err, out)
}

// machineIdentities returns what identifies each machine: VMID, host, disks, network card and generation.
func (w *world) machineIdentities() map[string]string {
	all := map[string]string{}

	for name, f := range w.machineStates() {
		c := f.vm.Config
		all[name] = fmt.Sprintln(f.vm.ID, f.vm.Host, c["scsi0"], c["efidisk0"], c["net0"], c["vmgenid"])
	}

	return all
}

// secretsBundle writes the machine secrets of a cluster, which it takes from its control plane as docs/migration.md
// does: with the machinery's function that `talosctl gen secrets` of Talos 1.14 calls, because the talosctl that builds
// here is older and does not read that configuration.
func (w *world) secretsBundle(talosconfig, address string) string {
	w.t.Helper()

	folder := w.t.TempDir()
	at := func(name string) string { return filepath.Join(folder, name) }
	require.NoError(w.t, os.WriteFile(at("talosconfig"), []byte(talosconfig), 0o600))

	cmd := exec.CommandContext(w.t.Context(), toolPath("talosctl"), "get", "machineconfig", "v1alpha1",
		"--nodes", address, "--output", "jsonpath={.spec}")

	cmd.Env = append(os.Environ(), "TALOSCONFIG="+at("talosconfig"))
	out, err := cmd.CombinedOutput()
	require.NoError(w.t, err, string(out))

	config, err := configloader.NewFromBytes(out)
	require.NoError(w.t, err)
	bundle, err := secrets.NewBundleFromConfig(secrets.NewClock(), config)
	require.NoError(w.t, err)
	text, err := yaml.Marshal(bundle)
	require.NoError(w.t, err)
	require.NoError(w.t, os.WriteFile(at("secrets.yaml"), text, 0o600))

	return at("secrets.yaml")
}
