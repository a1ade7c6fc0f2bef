package components

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/vm"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"proxmox-talos/internal/marker"
	"proxmox-talos/internal/spec"
)

// Devices of every node's VM. q35 has no other ide places than ide0 and ide2.
const (
	cdromDrive     = "ide0"
	cloudInitDrive = "ide2"
)

// Limits of single steps in seconds; the provider's own are half an hour, which hides a failure.
const (
	createTimeout = 1800
	bootTimeout   = 600
	stopTimeout   = 300
)

// virtualMachine states every property that the provider would otherwise guess: several of its defaults differ from what Proxmox then reports, and make each
// later run fail or change something.
func virtualMachine(n spec.Node, network spec.Network, iso pulumi.StringInput, owner marker.Owner) *vm.VirtualMachineArgs {
	args := &vm.VirtualMachineArgs{
		Name:     pulumi.String(n.Name),
		VmId:     pulumi.Int(n.VMID),
		NodeName: pulumi.String(n.Host),
		// The provider sends name and description with the very call that clones, so that a half-made VM says whose it is.
		Description: pulumi.String(marker.Node(owner, fmt.Sprintf("Talos %s %s of cluster %s", n.Role, n.Name, n.Cluster))),
		Tags:        pulumi.ToStringArray(n.Tags),
		PoolId:      optional(n.ResourcePool),

		Started:      pulumi.Bool(true),
		OnBoot:       pulumi.Bool(n.OnBoot),
		Reboot:       pulumi.Bool(false),
		Template:     pulumi.Bool(false),
		Protection:   pulumi.Bool(false),            // Proxmox' own protection shuts the VM down before it refuses; Pulumi's refuses first
		Migrate:      pulumi.Bool(len(n.GPUs) == 0), // a device stays where it is
		Acpi:         pulumi.Bool(true),
		TabletDevice: pulumi.Bool(false),
		// Talos ignores a long ACPI wait.
		StopOnDestroy: pulumi.Bool(true),

		Machine:         pulumi.String("q35"),
		Bios:            pulumi.String("ovmf"),
		ScsiHardware:    pulumi.String("virtio-scsi-pci"),
		KeyboardLayout:  pulumi.String("en-us"),
		BootOrders:      pulumi.StringArray{pulumi.String(spec.SystemDisk)},
		OperatingSystem: vm.VirtualMachineOperatingSystemArgs{Type: pulumi.String("l26")},
		SerialDevices:   vm.VirtualMachineSerialDeviceArray{vm.VirtualMachineSerialDeviceArgs{Device: pulumi.String("socket")}},
		Vga:             vm.VirtualMachineVgaArgs{Type: pulumi.String("std"), Memory: pulumi.Int(16)},
		EfiDisk: vm.VirtualMachineEfiDiskArgs{
			DatastoreId:     pulumi.String(n.Datastore),
			FileFormat:      pulumi.String("raw"),
			PreEnrolledKeys: pulumi.Bool(false),
			Type:            pulumi.String("4m"),
		},
		Cpu: vm.VirtualMachineCpuArgs{
			Cores:      pulumi.Int(n.Cores),
			Sockets:    pulumi.Int(1),
			Type:       pulumi.String(n.CPUType),
			Numa:       pulumi.Bool(n.NUMA),
			Units:      pulumi.Int(100), // Proxmox' own default; the provider's outweighs all other VMs tenfold
			Hotplugged: pulumi.Int(0),
			Limit:      pulumi.Int(0),
		},
		Memory: vm.VirtualMachineMemoryArgs{
			Dedicated: pulumi.Int(n.MemoryMiB),
			Floating:  pulumi.Int(0),
			Shared:    pulumi.Int(0),
		},
		Agent: vm.VirtualMachineAgentArgs{
			Enabled: pulumi.Bool(n.HasAgent()),
			// Every create and refresh waits this long for an agent that does not answer; nothing here needs its answer.
			Timeout: pulumi.String("2s"),
			Trim:    pulumi.Bool(false),
			Type:    pulumi.String("virtio"),
		},

		Disks:          disks(n),
		NetworkDevices: networkDevices(n, network),
		Initialization: initialization(n, network),
		Hostpcis:       hostPCIs(n.GPUs),

		TimeoutClone:      pulumi.Int(createTimeout),
		TimeoutCreate:     pulumi.Int(createTimeout),
		TimeoutMigrate:    pulumi.Int(createTimeout),
		TimeoutReboot:     pulumi.Int(bootTimeout),
		TimeoutStartVm:    pulumi.Int(bootTimeout),
		TimeoutShutdownVm: pulumi.Int(stopTimeout),
		TimeoutStopVm:     pulumi.Int(stopTimeout),
	}
	if n.StartupOrder > 0 {
		args.Startup = vm.VirtualMachineStartupArgs{Order: pulumi.Int(n.StartupOrder), UpDelay: pulumi.Int(-1), DownDelay: pulumi.Int(-1)}
	}
	origin(args, n, iso)

	return args
}

// origin says what the VM is made from: a clone of the template, or a blank disk that the ISO installs to.
func origin(args *vm.VirtualMachineArgs, n spec.Node, iso pulumi.StringInput) {
	var medium pulumi.StringInput = pulumi.String("none")
	if n.Template.Source == spec.SourceISO {
		medium = iso
		args.BootOrders = pulumi.StringArray{pulumi.String(spec.SystemDisk), pulumi.String(cdromDrive)}
	} else {
		clone := vm.VirtualMachineCloneArgs{
			VmId:     pulumi.Int(n.Template.VMID),
			NodeName: pulumi.String(n.Host),
			Full:     pulumi.Bool(!n.Linked),
			Retries:  pulumi.Int(3),
		}
		if !n.Linked { // Proxmox refuses a datastore for a linked clone
			clone.DatastoreId = pulumi.String(n.Datastore)
		}
		args.Clone = clone
	}
	args.Cdrom = vm.VirtualMachineCdromArgs{
		Enabled:   pulumi.Bool(true),
		FileId:    medium,
		Interface: pulumi.String(cdromDrive),
	}
}

func disks(n spec.Node) vm.VirtualMachineDiskArray {
	list := vm.VirtualMachineDiskArray{disk(spec.Disk{Interface: spec.SystemDisk, SizeGiB: n.DiskGiB, Datastore: n.Datastore})}
	for _, extra := range n.ExtraDisks {
		list = append(list, disk(extra))
	}

	return list
}

// disk has no I/O thread: the virtio-scsi-pci controller has none, and Proxmox would warn at every start. Disks at virtioN have no ssd in Proxmox.
func disk(d spec.Disk) vm.VirtualMachineDiskArgs {
	return vm.VirtualMachineDiskArgs{
		Interface:   pulumi.String(d.Interface),
		DatastoreId: pulumi.String(d.Datastore),
		Size:        pulumi.Int(d.SizeGiB),
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

// hostPCIs passes GPUs through by their mapping, or by address. Proxmox' own PCIe and ROM are stated: the provider would switch the ROM off.
func hostPCIs(gpus []spec.GPU) vm.VirtualMachineHostpciArray {
	var list vm.VirtualMachineHostpciArray
	for i, gpu := range gpus {
		device := vm.VirtualMachineHostpciArgs{Device: pulumi.String(fmt.Sprintf("hostpci%d", i)), Pcie: pulumi.Bool(true), Rombar: pulumi.Bool(true), Xvga: pulumi.Bool(false)}
		if gpu.Raw {
			device.Id = pulumi.String(gpu.PCI)
		} else {
			device.Mapping = pulumi.String(gpu.Name)
		}
		list = append(list, device)
	}

	return list
}

// cardsOf are a node's network cards, the cluster's first.
func cardsOf(n spec.Node, network spec.Network) []spec.NIC {
	return append([]spec.NIC{{Bridge: network.Bridge, VLAN: network.VLAN, MTU: network.MTU, MAC: n.MAC}}, n.ExtraNICs...)
}

func networkDevices(n spec.Node, network spec.Network) vm.VirtualMachineNetworkDeviceArray {
	var list vm.VirtualMachineNetworkDeviceArray
	for _, card := range cardsOf(n, network) {
		list = append(list, networkDevice(card))
	}

	return list
}

// optionsOf are the options of a node's cards and devices, as [VM] has them. A device by its address is only there or not.
func optionsOf(n spec.Node, network spec.Network) map[string]map[string]string {
	options := map[string]map[string]string{}
	for i, card := range cardsOf(n, network) {
		tag := ""
		if card.VLAN > 0 {
			tag = strconv.Itoa(card.VLAN)
		}
		options[fmt.Sprintf("net%d", i)] = map[string]string{"bridge": card.Bridge, "tag": tag}
	}
	for i, gpu := range n.GPUs {
		device := map[string]string{}
		if !gpu.Raw {
			device["mapping"] = gpu.Name
		}
		options[fmt.Sprintf("hostpci%d", i)] = device
	}

	return options
}

func networkDevice(card spec.NIC) vm.VirtualMachineNetworkDeviceArgs {
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

// initialization is the nocloud network data, by which a machine has its address before it has a configuration. There is no user data: Talos needs none.
// Only the first card is in it: the machine configuration knows the others, and the provider cannot take one out again, which would be a change for ever.
func initialization(n spec.Node, network spec.Network) vm.VirtualMachineInitializationArgs {
	address := ipConfig("dhcp", "")
	if !network.DHCP {
		gateway := ""
		if network.Gateway.IsValid() {
			gateway = network.Gateway.String()
		}
		address = ipConfig(n.Address.String(), gateway)
	}

	args := vm.VirtualMachineInitializationArgs{
		DatastoreId: pulumi.String(n.Datastore),
		Interface:   pulumi.String(cloudInitDrive),
		IpConfigs:   vm.VirtualMachineInitializationIpConfigArray{address},
	}
	if len(network.DNS) > 0 {
		args.Dns = vm.VirtualMachineInitializationDnsArgs{Servers: stringsOf(network.DNS)}
	}

	return args
}

func ipConfig(address, gateway string) vm.VirtualMachineInitializationIpConfigArgs {
	return vm.VirtualMachineInitializationIpConfigArgs{
		Ipv4: vm.VirtualMachineInitializationIpConfigIpv4Args{Address: pulumi.String(address), Gateway: optional(gateway)},
	}
}

func stringsOf[T fmt.Stringer](values []T) pulumi.StringArray {
	array := make(pulumi.StringArray, 0, len(values))
	for _, value := range values {
		array = append(array, pulumi.String(value.String()))
	}

	return array
}

// optional leaves an empty text out.
func optional(value string) pulumi.StringPtrInput {
	if value == "" {
		return nil
	}

	return pulumi.String(value)
}
