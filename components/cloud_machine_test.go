package components

import (
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/enginetest"
	"talos-proxmox/internal/tokens"
)

func plannedMachine() CloudMachineArgs {
	return CloudMachineArgs{
		Machine: Machine{
			Node: "pve1", VMID: 5000, MAC: "02:00:00:00:3c:00", Template: pulumi.Int(941), Agent: true, DiskPool: "tank",
			ExtraDisks: []Disk{{Interface: "virtio1", Size: 20}},
			ExtraNICs: []NIC{
				{Bridge: "vmbr1", MAC: "02:00:00:00:3c:01", Address: "127.2.0.5/24"}, {Bridge: "vmbr2", MAC: "02:00:00:00:3c:02"},
			},
		},
		Network: &Network{Gateway: "127.1.1.1", DNS: []string{"127.1.1.1"}}, SearchDomain: "example.org",
		Address: pulumi.String("127.1.1.60/24"),
		User:    "ops", SSHKeys: []string{"ssh-ed25519 AAAA ops"}, Password: pulumi.String("not to be seen"), Protect: true,
	}
}

func runMachine(t *testing.T, args CloudMachineArgs) (*enginetest.Recorder, enginetest.Registration) {
	t.Helper()

	r, err := enginetest.Run(enginetest.Options{}, func(ctx *pulumi.Context) error {
		_, err := NewCloudMachine(ctx, "web-1", args)

		return err
	})
	require.NoError(t, err)

	return r, r.Of(tokens.VirtualMachine)["web-1-vm"]
}

// TestCloudMachine says what a machine of another system has that a node has not, and what reaches no machine that is
// there.
func TestCloudMachine(t *testing.T) {
	t.Parallel()

	r, vm := runMachine(t, plannedMachine())
	for property, value := range map[string]any{
		"name": "web-1", "vmId": 5000, "nodeName": "pve1", "clone.vmId": 941, "clone.full": true, "onBoot": true,
		"machine": "q35", "bios": "ovmf", "efiDisk.preEnrolledKeys": false, "efiDisk.type": "4m", "efiDisk.datastoreId": "tank",
		"vga.type": "serial0", "operatingSystem.type": "l26", "bootOrders[0]": "scsi0", "cdrom.interface": "ide0",
		"disks[0].interface": "scsi0", "disks[1].interface": "virtio1", "agent.enabled": true, "agent.timeout": "2s",
		"initialization.interface": "scsi1", "initialization.datastoreId": "tank", "initialization.type": nil,
		"initialization.upgrade":                   nil, // has no effect in the provider
		"initialization.ipConfigs[0].ipv4.address": "127.1.1.60/24",
		"initialization.ipConfigs[0].ipv4.gateway": "127.1.1.1",
		"initialization.ipConfigs[1].ipv4.address": "127.2.0.5/24",
		"initialization.ipConfigs[2].ipv4.address": "dhcp",
		"initialization.dns.servers[0]":            "127.1.1.1",
		"initialization.dns.domain":                "example.org",
		"initialization.userAccount.username":      "ops",
		"initialization.userAccount.keys[0]":       "ssh-ed25519 AAAA ops",
		"networkDevices[0].macAddress":             "02:00:00:00:3C:00",
		"networkDevices[2].bridge":                 "vmbr2",
		"initialization.userDataFileId":            nil,
		"initialization.ipConfigs[2].ipv4.gateway": nil,
		"disks[0].fileId":                          nil,
		"memory.floating":                          0,
		"stopOnDestroy":                            true,
		"protection":                               true,
		"tpmState":                                 nil,
		"initialization.ipConfigs[0].ipv6":         nil,
		"initialization.metaDataFileId":            nil,
		"initialization.networkDataFileId":         nil,
		"initialization.vendorDataFileId":          nil,
		"networkDevices[1].firewall":               false,
		"serialDevices[0].device":                  "socket",
		"scsiHardware":                             "virtio-scsi-pci",
	} {
		assert.Equal(t, resource.NewPropertyValue(value), vm.Input(property), property)
	}

	assert.ElementsMatch(t, []string{
		"clone", "initialization.userAccount", "nodeName", "disks[0].speed", "disks[1].speed", "disks[1].interface",
		"disks[1].ssd",
	}, vm.Request.GetIgnoreChanges())
	assert.True(t, vm.Request.GetProtect())
	assert.True(t, vm.Request.GetDeleteBeforeReplace())
	assert.True(t, vm.Input("initialization.userAccount.password").IsSecret())
	assert.Equal(t, "127.1.1.60", r.Outputs("web-1")["address"].StringValue())
}

// TestCloudMachineOfOtherHardware follows its template's.
func TestCloudMachineOfOtherHardware(t *testing.T) {
	t.Parallel()

	args := plannedMachine()
	args.Hardware = &Hardware{Machine: "pc", BIOS: "seabios", SystemDisk: "virtio0", CloudInitDrive: "ide2"}
	args.Address, args.Network, args.SearchDomain, args.Password = nil, nil, "", nil

	_, vm := runMachine(t, args)
	for property, value := range map[string]any{
		"machine": "pc", "bios": "seabios", "efiDisk": nil, "disks[0].interface": "virtio0", "disks[0].ssd": false,
		"bootOrders[0]": "virtio0", "initialization.interface": "ide2", "agent.timeout": "180s",
		"initialization.ipConfigs[0].ipv4.address": "dhcp", "initialization.dns": nil,
		"initialization.userAccount.password": nil,
	} {
		assert.Equal(t, resource.NewPropertyValue(value), vm.Input(property), property)
	}

	assert.Contains(t, vm.Request.GetIgnoreChanges(), "initialization.dns")
}

func TestCloudMachineTellsAllProblems(t *testing.T) {
	t.Parallel()

	args := CloudMachineArgs{
		Machine: Machine{ExtraDisks: []Disk{{Interface: "scsi1", Size: 1}}}, Network: &Network{DHCP: true},
		Address: pulumi.String("127.1.1.60/24"),
	}
	_, err := enginetest.Run(enginetest.Options{}, func(ctx *pulumi.Context) error {
		_, err := NewCloudMachine(ctx, "web-1", args)

		return err
	})
	require.Error(t, err)

	for _, part := range []string{
		"machine.node", "machine.vmid", "machine.mac", "machine.template", "address: is set, and network.dhcp too",
		"machine.extraDisks[0].interface", "user: is missing",
	} {
		assert.ErrorContains(t, err, part)
	}
}
