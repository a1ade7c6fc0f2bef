package components

import (
	"fmt"
	"strings"

	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/vm"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/internal/marker"
)

// Devices of every node's VM. q35 has no other ide places than ide0 and ide2.
const (
	systemDisk     = "scsi0"
	cdromDrive     = "ide0"
	cloudInitDrive = "ide2"
)

// Limits of single steps in seconds; the provider's own are half an hour, which hides a failure.
const (
	createTimeout = 1800
	bootTimeout   = 600
	stopTimeout   = 300
)

// virtualMachine states every property that the provider would otherwise guess: several of its defaults differ from
// what Proxmox then reports, and make each later run fail or change something.
func virtualMachine(ctx *pulumi.Context, a TalosNodeArgs) *vm.VirtualMachineArgs {
	m := a.Machine
	owner := marker.Of(ctx.Organization(), ctx.Project(), ctx.Stack())

	args := &vm.VirtualMachineArgs{
		Name:     pulumi.String(a.Name),
		VmId:     pulumi.Int(m.VMID),
		NodeName: pulumi.String(m.Node),
		// The provider sends name and description with the very call that clones, so that a half-made VM says whose it is.
		Description: pulumi.String(marker.Node(owner, fmt.Sprintf("Talos %s %s of cluster %s", a.Role, a.Name, a.Cluster))),
		Tags:        pulumi.ToStringArray(m.Tags),
		PoolId:      optional(m.Pool),

		Started:  pulumi.Bool(true),
		OnBoot:   pulumi.Bool(*m.OnBoot),
		Reboot:   pulumi.Bool(false),
		Template: pulumi.Bool(false),
		// Proxmox' own protection shuts the VM down before it refuses; Pulumi's refuses first
		Protection:   pulumi.Bool(false),
		Migrate:      pulumi.Bool(len(m.PCIDevices) == 0), // a device stays where it is
		Acpi:         pulumi.Bool(true),
		TabletDevice: pulumi.Bool(false),
		// Talos ignores a long ACPI wait.
		StopOnDestroy: pulumi.Bool(true),

		Machine:         pulumi.String("q35"),
		Bios:            pulumi.String("ovmf"),
		ScsiHardware:    pulumi.String("virtio-scsi-pci"),
		KeyboardLayout:  pulumi.String("en-us"),
		BootOrders:      pulumi.StringArray{pulumi.String(systemDisk)},
		OperatingSystem: vm.VirtualMachineOperatingSystemArgs{Type: pulumi.String("l26")},
		SerialDevices: vm.VirtualMachineSerialDeviceArray{
			vm.VirtualMachineSerialDeviceArgs{Device: pulumi.String("socket")},
		},
		Vga: vm.VirtualMachineVgaArgs{Type: pulumi.String("std"), Memory: pulumi.Int(16)},
		EfiDisk: vm.VirtualMachineEfiDiskArgs{
			DatastoreId:     pulumi.String(m.DiskPool),
			FileFormat:      pulumi.String("raw"),
			PreEnrolledKeys: pulumi.Bool(false),
			Type:            pulumi.String("4m"),
		},
		Cpu: vm.VirtualMachineCpuArgs{
			Cores:      pulumi.Int(m.Cores),
			Sockets:    pulumi.Int(1),
			Type:       pulumi.String(m.CPUType),
			Numa:       pulumi.Bool(m.NUMA),
			Units:      pulumi.Int(100), // Proxmox' own default; the provider's outweighs all other VMs tenfold
			Hotplugged: pulumi.Int(0),
			Limit:      pulumi.Int(0),
		},
		Memory: vm.VirtualMachineMemoryArgs{
			Dedicated: pulumi.Int(m.Memory),
			Floating:  pulumi.Int(0),
			Shared:    pulumi.Int(0),
		},
		Agent: vm.VirtualMachineAgentArgs{
			Enabled: pulumi.Bool(m.Agent),
			// Every create and refresh waits this long for an agent that does not answer; nothing here needs its answer.
			Timeout: pulumi.String("2s"),
			Trim:    pulumi.Bool(false),
			Type:    pulumi.String("virtio"),
		},

		Disks:          disks(m),
		NetworkDevices: networkDevices(a),
		Initialization: initialization(a),
		Hostpcis:       hostPCIs(ctx, m.PCIDevices),

		TimeoutClone:      pulumi.Int(createTimeout),
		TimeoutCreate:     pulumi.Int(createTimeout),
		TimeoutMigrate:    pulumi.Int(createTimeout),
		TimeoutReboot:     pulumi.Int(bootTimeout),
		TimeoutStartVm:    pulumi.Int(bootTimeout),
		TimeoutShutdownVm: pulumi.Int(stopTimeout),
		TimeoutStopVm:     pulumi.Int(stopTimeout),
	}
	if m.StartupOrder > 0 {
		args.Startup = vm.VirtualMachineStartupArgs{
			Order: pulumi.Int(m.StartupOrder), UpDelay: pulumi.Int(-1), DownDelay: pulumi.Int(-1),
		}
	}

	origin(ctx, args, m)

	return args
}

// origin says what the VM is made from: a clone of the template, or a blank disk that the ISO installs to.
func origin(ctx *pulumi.Context, args *vm.VirtualMachineArgs, m Machine) {
	var medium pulumi.StringInput = pulumi.String("none")
	if m.Template == nil {
		medium = textOf(ctx, m.ISO)
		args.BootOrders = pulumi.StringArray{pulumi.String(systemDisk), pulumi.String(cdromDrive)}
	} else {
		clone := vm.VirtualMachineCloneArgs{
			VmId:     numberOf(ctx, m.Template),
			NodeName: pulumi.String(m.Node),
			Full:     pulumi.Bool(!m.Linked),
			Retries:  pulumi.Int(3),
		}
		if !m.Linked { // Proxmox refuses a datastore for a linked clone
			clone.DatastoreId = pulumi.String(m.DiskPool)
		}

		args.Clone = clone
	}

	args.Cdrom = vm.VirtualMachineCdromArgs{
		Enabled:   pulumi.Bool(true),
		FileId:    medium,
		Interface: pulumi.String(cdromDrive),
	}
}

func disks(m Machine) vm.VirtualMachineDiskArray {
	list := vm.VirtualMachineDiskArray{disk(Disk{Interface: systemDisk, Size: m.DiskSize, Pool: m.DiskPool})}
	for _, extra := range m.ExtraDisks {
		list = append(list, disk(extra))
	}

	return list
}

// disk has no I/O thread: the virtio-scsi-pci controller has none, and Proxmox would warn at every start. Disks at
// virtioN have no ssd in Proxmox.
func disk(d Disk) vm.VirtualMachineDiskArgs {
	return vm.VirtualMachineDiskArgs{
		Interface:   pulumi.String(d.Interface),
		DatastoreId: pulumi.String(d.Pool),
		Size:        pulumi.Int(d.Size),
		FileFormat:  pulumi.String("raw"),
		Aio:         pulumi.String("io_uring"),
		Backup:      pulumi.Bool(true),
		Cache:       pulumi.String("none"),
		Discard:     pulumi.String("on"),
		Iothread:    pulumi.Bool(false),
		Replicate:   pulumi.Bool(true),
		Ssd:         pulumi.Bool(!strings.HasPrefix(d.Interface, "virtio")),
	}
}

// hostPCIs passes devices through by their mapping, or by address. Proxmox' own PCIe and ROM are set: the provider
// would switch the ROM off.
func hostPCIs(ctx *pulumi.Context, devices []PCIDevice) vm.VirtualMachineHostpciArray {
	var list vm.VirtualMachineHostpciArray

	for i, d := range devices {
		device := vm.VirtualMachineHostpciArgs{
			Device: pulumi.String(fmt.Sprintf("hostpci%d", i)),
			Pcie:   pulumi.Bool(*d.PCIe), Rombar: pulumi.Bool(*d.ROMBar), Xvga: pulumi.Bool(false),
		}
		if d.Mapping == nil {
			device.Id = pulumi.String(d.ID)
		} else {
			device.Mapping = textOf(ctx, d.Mapping)
		}

		list = append(list, device)
	}

	return list
}

// networkDevices are a node's network cards, the cluster's first.
func networkDevices(a TalosNodeArgs) vm.VirtualMachineNetworkDeviceArray {
	first := NIC{Bridge: a.Network.Bridge, VLAN: a.Network.VLAN, MTU: a.Network.MTU, MAC: a.Machine.MAC}

	list := vm.VirtualMachineNetworkDeviceArray{networkDevice(first)}
	for _, card := range a.Machine.ExtraNICs {
		list = append(list, networkDevice(card))
	}

	return list
}

func networkDevice(card NIC) vm.VirtualMachineNetworkDeviceArgs {
	args := vm.VirtualMachineNetworkDeviceArgs{
		Bridge:       pulumi.String(card.Bridge),
		MacAddress:   pulumi.String(strings.ToUpper(card.MAC)), // as Proxmox writes it
		Model:        pulumi.String("virtio"),
		Enabled:      pulumi.Bool(true),
		Disconnected: pulumi.Bool(false),
		Firewall:     pulumi.Bool(false),
	}
	if card.VLAN > 0 {
		args.VlanId = pulumi.Int(card.VLAN)
	}

	if card.MTU > 0 {
		args.Mtu = pulumi.Int(card.MTU)
	}

	return args
}

// initialization is the nocloud network data, by which a machine has its address before it has a configuration. There
// is no user data: Talos needs none. Only the first card is in it: the machine configuration knows the others, and the
// provider cannot take one out again, which would differ in every run.
func initialization(a TalosNodeArgs) vm.VirtualMachineInitializationArgs {
	address := vm.VirtualMachineInitializationIpConfigIpv4Args{Address: pulumi.String("dhcp")}
	if !a.Network.DHCP {
		address.Address = a.Address.ToStringOutput().ToStringPtrOutput()
		address.Gateway = optional(a.Network.Gateway)
	}

	args := vm.VirtualMachineInitializationArgs{
		DatastoreId: pulumi.String(a.Machine.DiskPool),
		Interface:   pulumi.String(cloudInitDrive),
		IpConfigs:   vm.VirtualMachineInitializationIpConfigArray{vm.VirtualMachineInitializationIpConfigArgs{Ipv4: address}},
	}
	if len(a.Network.DNS) > 0 {
		args.Dns = vm.VirtualMachineInitializationDnsArgs{Servers: pulumi.ToStringArray(a.Network.DNS)}
	}

	return args
}

// optional leaves an empty text out.
func optional(value string) pulumi.StringPtrInput {
	if value == "" {
		return nil
	}

	return pulumi.String(value)
}
