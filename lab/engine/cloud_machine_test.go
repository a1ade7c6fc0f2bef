package engine_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components"
	"talos-proxmox/lab/datacentre"
	labimage "talos-proxmox/lab/image"
)

// cloudTemplate creates a template of Debian as a build leaves it: the agent is installed, and the first start upgrades
// no packages.
func (w *world) cloudTemplate(vmid int) {
	w.t.Helper()

	data := w.lab.Data
	w.requireTask(data.CreateVM(labRoot, "pve1", vmid, datacentre.Config{
		"name": "debian-13", "memory": "1024", "machine": "q35", "bios": "ovmf", "scsihw": "virtio-scsi-pci",
		"efidisk0": "local-lvm:1,efitype=4m,pre-enrolled-keys=1,format=raw", "scsi0": "local-lvm:5,format=raw,discard=on,ssd=1,aio=io_uring", "ciupgrade": "0", "boot": "order=scsi0",
	}))

	vm, found := data.VM(vmid)
	require.True(w.t, found)

	volume, _, _ := strings.Cut(vm.Config["scsi0"], ",")
	require.NoError(w.t, data.WriteVolume(volume, labimage.Image{OS: "debian", Version: "13", Arch: "amd64", Agent: true}))
	w.requireTask(data.ConvertToTemplate(labRoot, "pve1", vmid))
}

// TestCloudMachines takes machines of another system through their life: cloud-init sets them up, changes that would
// replace them do not reach them, and nothing is left after destroy.
func TestCloudMachines(t *testing.T) {
	t.Parallel()

	w := newWorld(t, 1000)
	w.cloudTemplate(941)
	w.cloudTemplate(942)

	first := components.CloudMachineArgs{
		Machine: components.Machine{
			Host: "pve1", VMID: 5000, MAC: "02:00:00:00:3c:00", Template: pulumi.Int(941), Agent: true, DiskSize: 8, Cores: 1,
			Memory: 1024,
		},
		Hardware: &components.Hardware{SecureBoot: true},
		Network:  &components.Network{Gateway: netip.MustParseAddr("10.0.0.1"), DNS: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}, Address: pulumi.String("10.0.0.60/24"),
		User: "ops", SSHKeys: []string{keyOfOps, keyOfOps + "-2"},
	}
	second := first
	second.Machine.VMID, second.Machine.MAC = 5001, "02:00:00:00:3c:01"
	second.Network, second.Address = nil, nil
	second.Password = pulumi.String("a password that no one sees")
	// The provider waits until the agent reports an address that is not loopback; nothing connects to this one.
	leased := netip.MustParseAddr("10.0.0.77")
	w.lab.Data.Reserve(second.Machine.MAC, leased)

	up := func(machines map[string]components.CloudMachineArgs, opts ...optup.Option) steps {
		t.Helper()

		w.options.Program = func(ctx *pulumi.Context) error {
			for name, args := range machines {
				machine, err := components.NewCloudMachine(ctx, name, args)
				if err != nil {
					return err
				}

				ctx.Export(name, machine.Address)
			}

			return nil
		}

		done, err := w.tryUp(t.Context(), programStack, opts...)
		require.NoError(t, err, w.output())

		return done
	}
	both := func() map[string]components.CloudMachineArgs {
		return map[string]components.CloudMachineArgs{"web-1": first, "web-2": second}
	}

	up(both())
	assert.Equal(t, "10.0.0.60", w.outputs()["web-1"].Value)
	assert.Equal(t, leased.String(), w.outputs()["web-2"].Value, "reported by the agent")

	one, found := w.lab.Machines.Cloud(5000)
	require.True(t, found)
	assert.Equal(t, "web-1", one.Hostname)
	assert.Equal(t, "ops", one.User)
	assert.Equal(t, first.SSHKeys, one.Keys)
	assert.False(t, one.Upgraded, "the template's ciupgrade")

	two, _ := w.lab.Machines.Cloud(5001)
	assert.True(t, strings.HasPrefix(two.Password, "$5$"), two.Password)

	for place, text := range w.writtenFiles() {
		assert.NotContains(t, text+w.output(), "a password that no one sees", place)
	}

	unchanged := func(why string) {
		t.Helper()

		for resource, step := range up(both()) {
			assert.Equal(t, "same", step, "%s: %s", why, resource)
		}
	}
	unchanged("again")
	w.refresh(programStack)
	unchanged("after a refresh")

	first.Machine.Template, second.Machine.Template = pulumi.Int(942), pulumi.Int(942)
	first.User, first.SSHKeys, second.Password = "other", nil, pulumi.String("another one")

	unchanged("a new template, user and password do not reach existing machines")

	first.Machine.ExtraDisks = []components.Disk{{Interface: "virtio1", SizeGiB: 1, Added: true, InterfacePinned: true}}
	first.Network = &components.Network{
		Gateway: netip.MustParseAddr("10.0.0.1"), DNS: []netip.Addr{netip.MustParseAddr("10.0.0.2")},
	}

	assert.Equal(t, "update", up(both())["VirtualMachine web-1-vm"])

	again, found := w.lab.Machines.Cloud(5000)
	require.True(t, found)
	assert.Equal(t, "ops", again.User)
	assert.Equal(t, 2, again.HostKeys, "cloud-init sees a new machine")

	w.destroy(programStack)

	for _, vmid := range []int{5000, 5001} {
		_, found := w.lab.Data.VM(vmid)
		assert.False(t, found)
	}
}

// TestCloudInitDriveThatNoKernelSees puts cloud-init's drive where real kernels do not see it.
func TestCloudInitDriveThatNoKernelSees(t *testing.T) {
	t.Parallel()

	w := newWorld(t, 1000)
	w.cloudTemplate(941)

	w.options.Program = func(ctx *pulumi.Context) error {
		_, err := components.NewCloudMachine(ctx, "web-1", components.CloudMachineArgs{
			Machine: components.Machine{
				Host: "pve1", VMID: 5000, MAC: "02:00:00:00:3c:00", Template: pulumi.Int(941), Agent: true, DiskSize: 8,
			},
			Hardware: &components.Hardware{SecureBoot: true, CloudInitDrive: "ide2"},
			Address:  pulumi.String("10.0.0.60/24"), User: "ops",
		})

		return err
	}

	_, err := w.tryUp(t.Context(), programStack)
	require.NoError(t, err, w.output())

	guest, found := w.lab.Machines.Cloud(5000)
	require.True(t, found)
	assert.Empty(t, guest.User)
	assert.Empty(t, guest.Addresses)
}
