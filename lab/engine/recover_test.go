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

// TestWhatAKilledRunLeaves lets the plugins of a killed run finish their machines, which the state does not know: the
// next up cannot make them, and says what to do. Then `talos-proxmox recover` removes what is the stack's own, and
// nothing else.
func TestWhatAKilledRunLeaves(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed/4)
	s := stack{Network: w.network, Clusters: []cluster{one(1, 2)}}

	const made = 3

	w.killed(s.yaml(t), func(w *world) bool { return len(w.machines()) == made }, false)
	require.Eventually(
		t, func() bool { return len(w.lab.Machines.Status()) == made }, within, 50*time.Millisecond,
		"the plugins finish their machines",
	)
	assert.NotEmpty(t, w.plugins())

	w.cancelled(s.yaml(t)) // what a user tries first

	_, err := w.tryUp(t.Context(), s.yaml(t), optup.Refresh())
	require.Error(t, err)
	assert.Contains(t, w.state(s.yaml(t)), "pending_operations", "they survive every run")
	assert.Contains(t, w.said(), "unable to create VM 3000: config file already exists")
	assert.Contains(
		t, w.said(),
		"an interrupted run of this stack left VM 3000 on "+w.hostOf(3000)+": `talos-proxmox recover lab --vmid 3000` removes it",
	)
	assert.NotContains(t, w.said(), "qm destroy")

	// One of the VMIDs is someone else's by now.
	host := w.hostOf(3001)
	require.NoError(t, w.lab.Data.SetConfig("root@pam", host, 3001, datacentre.Config{"name": "db"}))

	said, err := w.tryRecover()
	require.Error(t, err)
	assert.Contains(t, said, "cannot ask for confirmation without a terminal: pass --yes")
	assert.Len(t, w.machines(), made)

	said = w.recover()
	assert.Contains(t, said, "VM 3001 db on "+host+" (running) is left alone: it is not one-general-2")
	assert.Contains(t, said, "VM 3000 one-general-1 on "+w.plan(s).Clusters[0].Nodes()[1].Host+" (running) is removed")
	assert.Equal(t, map[string]int{"db": 3001}, w.machines())
	assert.NotContains(t, w.state(s.yaml(t)), "pending_operations")
	assert.Empty(t, w.plugins())

	// It is not pending any more: only its VMID stated has it removed, and only with the name that is planned for it.
	assert.Contains(t, w.recover(), "Stack lab has 0 pending operations.")
	said, err = w.tryRecover("--yes", "--vmid", "3001")
	require.NoError(t, err, said)
	assert.Contains(t, said, "is left alone: it is not one-general-2")
	assert.Equal(t, map[string]int{"db": 3001}, w.machines())

	require.NoError(t, w.lab.Data.SetConfig("root@pam", host, 3001, datacentre.Config{"name": "one-general-2"}))
	said, err = w.tryRecover("--yes", "--vmid", "3001")
	require.Error(t, err)
	assert.Contains(t, said, "may be in use: it runs")
	said, err = w.tryRecover("--yes", "--vmid", "3001", "--confirm", "one-general-2")
	require.NoError(t, err, said)
	w.requireRecovered(s.yaml(t))

	w.up(s.yaml(t), optup.Refresh())
	w.requireWhole(s.yaml(t))
}

// cancelled unlocks the stack. Where the kill met the writing of the state or of its attributes, Pulumi cannot read it:
// its backup takes its place, and the attributes go, as `talos-proxmox recover` does it.
func (w *world) cancelled(stack string) {
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

// TestAUserThatAKilledRunMade kills a run between the creation of a user on Proxmox and the look at it: Proxmox refuses
// another one of its name, until `talos-proxmox recover` has removed it.
func TestAUserThatAKilledRunMade(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed/4)
	plain := stack{Network: w.network, Clusters: []cluster{one(1, 0)}}.yaml(t)
	text := onProxmox(plain, "{region: homelab, cloudController: {}}")

	const user = "talos-lab-one-ccm@pve"

	there := func(w *world) bool {
		_, found := w.lab.Data.Records(datacentre.Users)[user]

		return found
	}

	_, err := w.lab.Data.AddFault(
		datacentre.Fault{Method: "GET", Path: "/access/users/" + user + "$", Delay: 1000 * time.Hour},
	)
	require.NoError(t, err)
	w.killed(text, there, true)
	require.NoError(t, w.lab.Data.ClearFaults())

	w.cancelled(text) // what a user tries first

	_, err = w.tryUp(t.Context(), text, optup.Refresh())
	require.Error(t, err)
	assert.Contains(t, w.said(), "there is a user "+user+", and its comment under Datacenter, Permissions says whose it is")
	assert.Contains(t, w.said(), "`talos-proxmox recover lab` removes it. Anybody else's stays")

	assert.Contains(t, w.recover(), "user "+user+" is removed")
	assert.False(t, there(w))

	// The lab's small Kubernetes takes no Secrets, so that the run ends there; the user is made.
	_, err = w.tryUp(t.Context(), text, optup.Refresh())
	require.Error(t, err)
	assert.True(t, there(w))
}

// TestAMappingThatAKilledRunMade kills a run between the creation of its PCI mapping and the answer: the state does not
// know it, and Proxmox refuses another one. Then `talos-proxmox recover` removes it, unless it is another stack's.
func TestAMappingThatAKilledRunMade(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed/4)
	text := w.gpuMachine(t, "whenIdle")

	_, err := w.lab.Data.AddFault(
		datacentre.Fault{Method: "GET", Path: "/cluster/mapping/pci/rtx4000$", Delay: 1000 * time.Hour},
	)
	require.NoError(t, err)
	w.killed(text, func(w *world) bool { return len(w.lab.Data.Records(datacentre.Mappings)) == 1 }, true)
	require.NoError(t, w.lab.Data.ClearFaults())

	w.cancelled(text) // what a user tries first

	_, err = w.tryUp(t.Context(), text, optup.Refresh())
	require.Error(t, err)
	assert.Contains(t, w.said(), "pci ID 'rtx4000' already defined")
	assert.Contains(
		t, w.said(), "If it names this stack, an interrupted run left it, and `talos-proxmox recover lab` removes it",
	)

	made := w.lab.Data.Records(datacentre.Mappings)["rtx4000"]
	others := maps.Clone(made)
	others["description"] = strings.NewReplacer("/lab ", "/other ", "id=", "id=0").Replace(made["description"])
	require.NotEqual(t, made, others)

	// Only asked: nothing is changed.
	w.lab.Data.Put(datacentre.Mappings, "rtx4000", others)
	said, err := w.tryRecover()
	require.Error(t, err)
	assert.Contains(t, said, "PCI mapping rtx4000 is left alone: stack organization/talos-proxmox/other (id=0")

	w.lab.Data.Put(datacentre.Mappings, "rtx4000", made)
	assert.Contains(t, w.recover(), "PCI mapping rtx4000 is removed")
	assert.Empty(t, w.lab.Data.Records(datacentre.Mappings))
	w.requireRecovered(text)

	w.up(text, optup.Refresh())
	assert.Equal(t, map[string]datacentre.Config{"rtx4000": made}, w.lab.Data.Records(datacentre.Mappings))
	w.up(text, optup.ExpectNoChanges())
}

// hostOf is the host of a VM.
func (w *world) hostOf(vmid int) string {
	w.t.Helper()

	vm, ok := w.lab.Data.VM(vmid)
	require.True(w.t, ok)

	return vm.Host
}

// TestAHalfBuiltTemplate ends a template's build script with its run: the template is removed, and nothing of it is
// left when the stack is destroyed instead of resumed.
func TestAHalfBuiltTemplate(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed/12)
	s := stack{Network: w.network, OneHost: true, Clusters: []cluster{one(1, 0)}}

	w.killed(s.yaml(t), func(w *world) bool { return w.described(" state=building ") }, true)
	w.reboot("pve1")
	require.True(t, w.described(" state=building "), "the script is gone, and what it made is half-made")

	said := w.recover()
	assert.Regexp(t, `template talos-v1\.14\.4-talos \(VM \d+\) is removed`, said)
	assert.Empty(t, w.lab.Data.VMs())
	w.requireRecovered(s.yaml(t))

	w.destroy(s.yaml(t))
	assert.Empty(t, w.lab.Data.VMs())
}

// TestARemovalOfAHalfBuiltTemplateWasCutShort, as where the build's own undoing ran on a connection that broke: the VM
// has a lock, and nothing else. It is removed on its host, as root.
func TestARemovalOfAHalfBuiltTemplateWasCutShort(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed/12)
	s := stack{Network: w.network, OneHost: true, Clusters: []cluster{one(1, 0)}}

	w.killed(s.yaml(t), func(w *world) bool { return w.described(" state=building ") }, true)
	w.reboot("pve1")

	left := w.lab.Data.VMs()
	require.Len(t, left, 1)
	require.NoError(t, w.lab.Data.CutRemovalShort(left[0].ID))

	said := w.recover()
	assert.Regexp(t, `creating \S+-build: VM \d+ talos-v1\.14\.4-talos on pve1 \(stopped\) is removed`, said)
	assert.Regexp(t, `(?m)^VM \d+ is removed$`, said)
	assert.Empty(t, w.lab.Data.VMs())
	w.requireRecovered(s.yaml(t))
}

// TestMachinesOfAnOlderVersionGetTheirMarker brings up machines with the description of former versions: the marker is
// one change in place, of nothing but the description.
func TestMachinesOfAnOlderVersionGetTheirMarker(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	s := stack{Network: w.network, Clusters: []cluster{one(1, 1)}}

	w.options.Program = func(ctx *pulumi.Context) error {
		if err := ctx.RegisterStackTransformation(describedAsBefore); err != nil {
			return err
		}

		return stacks.Deploy(ctx)
	}
	w.up(s.yaml(t))
	require.True(t, w.described("made by talos-proxmox"))

	w.options.Program = nil
	tasks, boots := len(w.lab.Data.Tasks()), w.boots()

	done := w.up(s.yaml(t))
	assert.Equal(
		t, []string{"Command one-healthy", "VirtualMachine one-cp-1-vm", "VirtualMachine one-general-1-vm"},
		done.named("update"),
	)
	assert.Len(t, done, 3, "%v", done)

	made, ok := w.lab.Data.VM(3000)
	require.True(t, ok)
	assert.Regexp(
		t, `^talos-proxmox-node owner=organization/talos-proxmox/lab id=[0-9a-f]{16} \(Talos worker one-general-1 of cluster one\)`,
		made.Config["description"],
	)
	assert.Len(t, w.lab.Data.Tasks(), tasks, "no task: nothing is stopped, started or moved")
	assert.Equal(t, boots, w.boots(), "no machine reboots")

	w.up(s.yaml(t), optup.ExpectNoChanges())
}

// describedAsBefore gives VMs the description that they had before it named their stack.
func describedAsBefore(args *pulumi.ResourceTransformationArgs) *pulumi.ResourceTransformationResult {
	if machine, ok := args.Props.(*vm.VirtualMachineArgs); ok {
		machine.Description = pulumi.String("Talos worker of a cluster, made by talos-proxmox")
	}

	return &pulumi.ResourceTransformationResult{Props: args.Props, Opts: args.Opts}
}

// boots are when the VMs that run were switched on.
func (w *world) boots() map[string]time.Time {
	list := map[string]time.Time{}

	for _, vm := range w.lab.Data.VMs() {
		if vm.Running {
			list[vm.Name] = vm.Since
		}
	}

	return list
}
