package engine_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/vm"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
	"talos-proxmox/stacks"
)

// TestRecoverMachines lets the plugins of a killed run finish their machines, which the state does not have: the next
// up cannot create them, and says what to do. Then `talos-proxmox recover` removes the stack's own machines, and
// nothing else.
func TestRecoverMachines(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed/4)
	s := w.stack(1, 2)

	const made = 3

	w.killedUp(s.yaml(t), func(w *world) bool { return len(w.machines()) == made }, false)
	require.Eventually(
		t, func() bool { return len(w.lab.Machines.Status()) == made }, within, 50*time.Millisecond,
		"the plugins finish their machines",
	)
	assert.NotEmpty(t, w.plugins())

	w.cancelRun(s.yaml(t)) // what a user tries first

	_, err := w.tryUp(t.Context(), s.yaml(t), optup.Refresh())
	require.Error(t, err)
	assert.Contains(t, w.state(s.yaml(t)), "pending_operations", "they survive every run")
	assert.Contains(t, w.output(), "unable to create VM 3000: config file already exists")
	assert.Contains(
		t, w.output(),
		"an interrupted run of this stack left VM 3000 on "+w.hostOf(3000)+": `talos-proxmox recover lab --vmid 3000` removes it",
	)
	assert.NotContains(t, w.output(), "qm destroy")

	// One of the VMIDs is someone else's now.
	host := w.hostOf(3001)
	require.NoError(t, w.lab.Data.SetConfig(labRoot, host, 3001, datacentre.Config{"name": "db"}))

	output, err := w.tryRecover()
	require.Error(t, err)
	assert.Contains(t, output, "cannot ask for confirmation without a terminal: pass --yes")
	assert.Len(t, w.machines(), made)

	output = w.recover()
	assert.Contains(t, output, "VM 3001 db on "+host+" (running) is left alone: it is not one-general-2")
	assert.Contains(t, output, "VM 3000 one-general-1 on "+w.plan(s).Clusters[0].Nodes()[1].Host+" (running) is removed")
	assert.Equal(t, map[string]int{"db": 3001}, w.machines())
	assert.NotContains(t, w.state(s.yaml(t)), "pending_operations")
	assert.Empty(t, w.plugins())

	// It is no longer pending: only --vmid removes it, and only with its planned name.
	assert.Contains(t, w.recover(), "Stack lab has 0 pending operations.")
	output, err = w.tryRecover("--yes", "--vmid", "3001")
	require.NoError(t, err, output)
	assert.Contains(t, output, "is left alone: it is not one-general-2")
	assert.Equal(t, map[string]int{"db": 3001}, w.machines())

	require.NoError(t, w.lab.Data.SetConfig(labRoot, host, 3001, datacentre.Config{"name": "one-general-2"}))
	output, err = w.tryRecover("--yes", "--vmid", "3001")
	require.Error(t, err)
	assert.Contains(t, output, "may be in use: it runs")
	output, err = w.tryRecover("--yes", "--vmid", "3001", "--confirm", "one-general-2")
	require.NoError(t, err, output)
	w.requireRecovered(s.yaml(t))

	w.up(s.yaml(t), optup.Refresh())
	w.requireComplete(s.yaml(t))
}

// TestRecoverReplacement kills a run while it creates a machine in the place of one that it has deleted: the state
// still has the deleted one, with the same VMID.
func TestRecoverReplacement(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed/4)
	file := w.stack(1, 2).yaml(t)
	w.up(file)

	before := w.vm("one-general-1").Config["vmgenid"]
	require.NotEmpty(t, before)

	replace := optup.Replace([]string{w.urnOf(file, "one-general-1-vm")})
	w.killedUp(file, func(w *world) bool {
		vm, exists := w.lab.Data.VM(3000)

		return exists && vm.Config["name"] == "one-general-1" && vm.Config["vmgenid"] != before
	}, true, replace)
	assert.Contains(t, w.state(file), `"pendingReplacement":true`)

	assert.Regexp(t, `(?m)^VM 3000 one-general-1 on pve[12] \(\w+\) is removed with its disks`, w.recover())
	assert.NotContains(t, w.machines(), "one-general-1")

	w.up(file, optup.Refresh(), replace)
	w.up(file, optup.ExpectNoChanges())
	w.requireComplete(file)
}

// TestAControlPlaneThatWasNeverConfigured kills a run between the creation of a control plane and its configuration.
// The next run finds it off: it does not take it for a dead member, but starts and configures it.
func TestAControlPlaneThatWasNeverConfigured(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	s := w.stack(1, 0)
	w.up(s.yaml(t))

	s.Clusters[0].ControlPlanes = 3
	w.killedUp(s.yaml(t), func(w *world) bool {
		begun := strings.Contains(w.output(), "one-cp-2-vm created") && len(w.processes("talosops", "apply")) > 0
		if begun {
			w.stopVM(2001)
		}

		return begun
	}, true)
	w.recover()
	assert.Contains(t, w.state(s.yaml(t)), "one-cp-2-vm")
	assert.NotContains(t, w.state(s.yaml(t)), "one-cp-2-configuration")

	w.up(s.yaml(t), optup.Refresh())
	w.up(s.yaml(t), optup.ExpectNoChanges())
}

// cancelRun unlocks the stack. If the kill interrupted the writing of the state or of its attributes, Pulumi cannot
// read them: as in `talos-proxmox recover`, the backup replaces the state, and the attributes are removed.
func (w *world) cancelRun(stack string) {
	w.t.Helper()

	state := filepath.Join(w.dir, "state", ".pulumi", "stacks", "talos-proxmox", "lab.json")

	content, err := os.ReadFile(state)
	require.NoError(w.t, err)

	if !json.Valid(content) {
		require.NoError(w.t, os.Rename(state+".bak", state))
	}

	if attributes, err := os.ReadFile(state + ".attrs"); err == nil && !json.Valid(attributes) {
		require.NoError(w.t, os.Remove(state+".attrs"))
	}

	e := w.engine(stack)
	defer e.Close()

	current := e.Stack()
	require.NoError(w.t, current.Cancel(w.t.Context()))
}

// TestRecoverUser kills a run after it has created a user on Proxmox and before it has read it: Proxmox refuses another
// one with its name, until `talos-proxmox recover` has removed it.
func TestRecoverUser(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed/4)
	plain := w.stack(1, 0).yaml(t)
	text := withProxmox(plain, "{region: homelab, cloudController: {}}")

	const user = "talos-lab-one-ccm@pve"

	exists := func(w *world) bool {
		_, found := w.lab.Data.Records(datacentre.Users)[user]

		return found
	}

	removeFault := w.addFault(
		datacentre.Fault{Method: "GET", Path: "/access/users/" + user + "$", Delay: 1000 * time.Hour},
	)
	w.killedUp(text, exists, true)
	removeFault()

	w.cancelRun(text) // what a user tries first

	_, err := w.tryUp(t.Context(), text, optup.Refresh())
	require.Error(t, err)
	assert.Contains(t, w.output(), "there is a user "+user+", and its comment under Datacenter, Permissions says whose it is")
	assert.Contains(t, w.output(), "`talos-proxmox recover lab` removes it. Anybody else's stays")

	assert.Contains(t, w.recover(), "user "+user+" is removed")
	assert.False(t, exists(w))

	// The lab's model of Kubernetes takes no Secrets, so that the run ends there, after it has created the user.
	_, err = w.tryUp(t.Context(), text, optup.Refresh())
	require.Error(t, err)
	assert.True(t, exists(w))
}

// TestRecoverMapping kills a run after it has created its PCI mapping and before the answer: the state does not have
// it, and Proxmox refuses another one. Then `talos-proxmox recover` removes it, unless it is another stack's.
func TestRecoverMapping(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed/4)
	text := w.gpuStackFile(t, "whenIdle")

	removeFault := w.addFault(
		datacentre.Fault{Method: "GET", Path: "/cluster/mapping/pci/rtx4000$", Delay: 1000 * time.Hour},
	)
	w.killedUp(text, func(w *world) bool { return len(w.lab.Data.Records(datacentre.PCIMappings)) == 1 }, true)
	removeFault()

	w.cancelRun(text) // what a user tries first

	_, err := w.tryUp(t.Context(), text, optup.Refresh())
	require.Error(t, err)
	assert.Contains(t, w.output(), "pci ID 'rtx4000' already defined")
	assert.Contains(
		t, w.output(), "If it names this stack, an interrupted run left it, and `talos-proxmox recover lab` removes it",
	)

	mapping := w.lab.Data.Records(datacentre.PCIMappings)["rtx4000"]
	others := maps.Clone(mapping)
	others["description"] = strings.NewReplacer("/lab ", "/other ", "id=", "id=0").Replace(mapping["description"])
	require.NotEqual(t, mapping, others)

	// Without --yes nothing is changed.
	w.lab.Data.Put(datacentre.PCIMappings, "rtx4000", others)
	output, err := w.tryRecover()
	require.Error(t, err)
	assert.Contains(t, output, "PCI mapping rtx4000 is left alone: stack organization/talos-proxmox/other (id=0")

	w.lab.Data.Put(datacentre.PCIMappings, "rtx4000", mapping)
	assert.Contains(t, w.recover(), "PCI mapping rtx4000 is removed")
	assert.Empty(t, w.lab.Data.Records(datacentre.PCIMappings))
	w.requireRecovered(text)

	w.up(text, optup.Refresh())
	assert.Equal(t, map[string]datacentre.Config{"rtx4000": mapping}, w.lab.Data.Records(datacentre.PCIMappings))
	w.up(text, optup.ExpectNoChanges())
}

// TestRecoverHalfBuiltTemplate kills a template's build script with its run: the template is removed, and nothing is
// left when the stack is destroyed instead of resumed.
func TestRecoverHalfBuiltTemplate(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed/12)
	s := stack{Network: w.network, OneHost: true, Clusters: []cluster{clusterOne(1, 0)}}

	w.killedUp(s.yaml(t), func(w *world) bool { return w.hasDescription(" state=building ") }, true)
	w.reboot("pve1")
	require.True(t, w.hasDescription(" state=building "), "the script has ended before the template was complete")

	output := w.recover()
	assert.Regexp(t, `template talos-v1\.14\.4-talos \(VM \d+\) is removed`, output)
	assert.Empty(t, w.lab.Data.VMs())
	w.requireRecovered(s.yaml(t))

	w.destroy(s.yaml(t))
	assert.Empty(t, w.lab.Data.VMs())
}

// TestRecoverInterruptedTemplateRemoval has a VM with nothing but a lock, as if the connection broke during the build
// script's own cleanup. It is removed on its host, as root.
func TestRecoverInterruptedTemplateRemoval(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed/12)
	s := stack{Network: w.network, OneHost: true, Clusters: []cluster{clusterOne(1, 0)}}

	w.killedUp(s.yaml(t), func(w *world) bool { return w.hasDescription(" state=building ") }, true)
	w.reboot("pve1")

	left := w.lab.Data.VMs()
	require.Len(t, left, 1)
	require.NoError(t, w.lab.Data.InterruptDestroy(left[0].ID))

	output := w.recover()
	assert.Regexp(t, `creating \S+-build: VM \d+ talos-v1\.14\.4-talos on pve1 \(stopped\) is removed`, output)
	assert.Regexp(t, `(?m)^VM \d+ is removed$`, output)
	assert.Empty(t, w.lab.Data.VMs())
	w.requireRecovered(s.yaml(t))
}

// TestMachinesOfAnOlderVersionGetTheirMarker brings up machines with the description of former versions: they get the
// marker by one update in place, of nothing but the description.
func TestMachinesOfAnOlderVersionGetTheirMarker(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	s := w.stack(1, 1)

	w.options.Program = func(ctx *pulumi.Context) error {
		if err := ctx.RegisterStackTransformation(withFormerDescription); err != nil {
			return err
		}

		return stacks.Program{Transport: w.proxmoxClient().Transport}.Deploy(ctx)
	}
	w.up(s.yaml(t))
	require.True(t, w.hasDescription("made by talos-proxmox"))

	w.options.Program = nil
	tasks, boots := len(w.lab.Data.Tasks()), w.bootTimes()

	done := w.up(s.yaml(t))
	assert.Equal(
		t, []string{"Command one-healthy", "VirtualMachine one-cp-1-vm", "VirtualMachine one-general-1-vm"},
		done.withOp("update"),
	)
	assert.Len(t, done, 3, "%v", done)

	worker, ok := w.lab.Data.VM(3000)
	require.True(t, ok)
	assert.Regexp(
		t, `^talos-proxmox-node owner=organization/talos-proxmox/lab id=[0-9a-f]{16} \(Talos worker one-general-1 of cluster one\)`,
		worker.Config["description"],
	)
	assert.Len(t, w.lab.Data.Tasks(), tasks, "no task: nothing is stopped, started or moved")
	assert.Equal(t, boots, w.bootTimes(), "no machine reboots")

	w.up(s.yaml(t), optup.ExpectNoChanges())
}

// withFormerDescription gives VMs the description from before it named their stack.
func withFormerDescription(args *pulumi.ResourceTransformationArgs) *pulumi.ResourceTransformationResult {
	if machine, ok := args.Props.(*vm.VirtualMachineArgs); ok {
		machine.Description = pulumi.String("Talos worker of a cluster, made by talos-proxmox")
	}

	return &pulumi.ResourceTransformationResult{Props: args.Props, Opts: args.Opts}
}

// bootTimes returns when the running VMs were started.
func (w *world) bootTimes() map[string]time.Time {
	list := map[string]time.Time{}

	for _, vm := range w.lab.Data.VMs() {
		if vm.Running {
			list[vm.Name] = vm.Since
		}
	}

	return list
}
