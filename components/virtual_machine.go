package components

import (
	"fmt"
	"strings"

	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/vm"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/internal/ownership"
	"talos-proxmox/internal/tokens"
)

// cdromDrive is where every VM has its CD drive. q35 has no other ide places than ide0 and ide2.
const cdromDrive = "ide0"

// talosHardware is what nodes' VMs have.
var talosHardware = Hardware{
	OSType: "l26", Machine: "q35", BIOS: biosOVMF, SystemDisk: "scsi0", CloudInitDrive: "ide2", Display: "std",
}

// biosOVMF is the firmware that keeps its settings on a disk of its own.
const biosOVMF = "ovmf"

// virtual is a VM: what is the same whatever it runs, and what that decides.
type virtual struct {
	name     string
	about    string // for people, in the description
	machine  Machine
	network  Network
	hardware Hardware
	// agentTimeout is how long every create and refresh waits for an agent that does not answer.
	agentTimeout   string
	initialization vm.VirtualMachineInitializationArgs
	protect        bool
}

// Limits of single steps in seconds; the provider's own are half an hour, which hides a failure.
const (
	createTimeout = 1800
	bootTimeout   = 600
	stopTimeout   = 300
)

// virtualMachine states every property that the provider would otherwise guess: several of its defaults differ from
// what Proxmox then reports, and make each later run fail or change something.
func virtualMachine(ctx *pulumi.Context, v virtual) *vm.VirtualMachineArgs {
	m := v.machine

	args := &vm.VirtualMachineArgs{
		Name:     pulumi.String(v.name),
		VmId:     pulumi.Int(m.VMID),
		NodeName: pulumi.String(m.Node),
		// The provider sends name and description with the very call that clones, so that a half-made VM says whose it is.
		Description: pulumi.String(ownership.Node(markedOwner(ctx), v.about)),
		Tags:        pulumi.ToStringArray(m.Tags),
		PoolId:      optional(m.Pool),

		Started:  pulumi.Bool(true),
		OnBoot:   pulumi.Bool(*m.OnBoot),
		Reboot:   pulumi.Bool(false),
		Template: pulumi.Bool(false),
		// Against others: Pulumi's own refuses first. Both go in an up, and deletions in the next: the provider would
		// stop the VM before Proxmox refuses.
		Protection:   pulumi.Bool(v.protect),
		Migrate:      pulumi.Bool(len(m.PCIDevices) == 0), // a device stays where it is
		Acpi:         pulumi.Bool(true),
		TabletDevice: pulumi.Bool(false),
		// Talos ignores a long ACPI wait, and the disks go with any machine.
		StopOnDestroy: pulumi.Bool(true),

		Machine:         pulumi.String(v.hardware.Machine),
		Bios:            pulumi.String(v.hardware.BIOS),
		ScsiHardware:    pulumi.String("virtio-scsi-pci"),
		KeyboardLayout:  pulumi.String("en-us"),
		BootOrders:      pulumi.StringArray{pulumi.String(v.hardware.SystemDisk)},
		OperatingSystem: vm.VirtualMachineOperatingSystemArgs{Type: pulumi.String(v.hardware.OSType)},
		SerialDevices: vm.VirtualMachineSerialDeviceArray{
			vm.VirtualMachineSerialDeviceArgs{Device: pulumi.String("socket")},
		},
		Vga: vm.VirtualMachineVgaArgs{Type: pulumi.String(v.hardware.Display), Memory: pulumi.Int(16)},
		Cpu: vm.VirtualMachineCpuArgs{
			Cores:      pulumi.Int(m.Cores),
			Sockets:    pulumi.Int(1),
			Type:       pulumi.String(m.CPUType),
			Numa:       pulumi.Bool(m.NUMA),
			Units:      pulumi.Int(m.CPUUnits),
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
			Timeout: pulumi.String(v.agentTimeout),
			Trim:    pulumi.Bool(false),
			Type:    pulumi.String("virtio"),
		},

		Disks:          disks(m, v.hardware.SystemDisk),
		NetworkDevices: networkDevices(m, v.network),
		Initialization: v.initialization,
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

	if v.hardware.BIOS == biosOVMF {
		args.EfiDisk = vm.VirtualMachineEfiDiskArgs{
			DatastoreId:     pulumi.String(m.DiskPool),
			FileFormat:      pulumi.String("raw"),
			PreEnrolledKeys: pulumi.Bool(v.hardware.SecureBoot),
			Type:            pulumi.String("4m"),
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
		args.BootOrders = pulumi.StringArray{pulumi.String(talosHardware.SystemDisk), pulumi.String(cdromDrive)}
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

func disks(m Machine, system string) vm.VirtualMachineDiskArray {
	list := vm.VirtualMachineDiskArray{disk(Disk{Interface: system, Size: m.DiskSize, Pool: m.DiskPool})}
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

// networkDevices are a machine's network cards.
func networkDevices(m Machine, n Network) vm.VirtualMachineNetworkDeviceArray {
	first := NIC{Bridge: n.Bridge, VLAN: n.VLAN, MTU: n.MTU, MAC: m.MAC}

	list := vm.VirtualMachineNetworkDeviceArray{networkDevice(first)}
	for _, card := range m.ExtraNICs {
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
	address := firstAddress(*a.Network, a.Address)

	args := vm.VirtualMachineInitializationArgs{
		DatastoreId: pulumi.String(a.Machine.DiskPool),
		Interface:   pulumi.String(talosHardware.CloudInitDrive),
		IpConfigs:   vm.VirtualMachineInitializationIpConfigArray{vm.VirtualMachineInitializationIpConfigArgs{Ipv4: address}},
	}
	if len(a.Network.DNS) > 0 {
		args.Dns = vm.VirtualMachineInitializationDnsArgs{Servers: pulumi.ToStringArray(a.Network.DNS)}
	}

	return args
}

// firstAddress is how the first card gets its address.
func firstAddress(n Network, address pulumi.StringInput) vm.VirtualMachineInitializationIpConfigIpv4Args {
	if n.DHCP {
		return vm.VirtualMachineInitializationIpConfigIpv4Args{Address: pulumi.String("dhcp")}
	}

	return vm.VirtualMachineInitializationIpConfigIpv4Args{
		Address: address.ToStringOutput().ToStringPtrOutput(), Gateway: optional(n.Gateway),
	}
}

// newVM registers a VM that keeps what changes cannot reach: a running machine never follows its template, and follows
// the plan to another host only when that host is set, or when its GPU is there: since it cannot migrate then, it is
// replaced. The provider sees a difference in the disks' speed forever. Ignored are what else the VM keeps.
func newVM(
	ctx *pulumi.Context, name string, v virtual, ignored []string, opts ...pulumi.ResourceOption,
) (*vm.VirtualMachine, error) {
	m := v.machine

	ignored = append([]string{"clone"}, ignored...)
	if !m.NodePinned && len(m.PCIDevices) == 0 {
		ignored = append(ignored, "nodeName")
	}

	if v.initialization.Dns == nil { // the provider never takes a name server out again
		ignored = append(ignored, "initialization.dns")
	}

	ignored = append(ignored, "disks[0].speed")

	for i, d := range m.ExtraDisks {
		if !d.Added { // the engine warns of a path that the state does not have
			ignored = append(ignored, fmt.Sprintf("disks[%d].speed", 1+i))
		}
		// A disk stays where it is attached: nothing re-attaches it, and earlier versions of this program used scsiN.
		if !d.Pinned {
			ignored = append(ignored, fmt.Sprintf("disks[%d].interface", 1+i), fmt.Sprintf("disks[%d].ssd", 1+i))
		}
	}

	return vm.NewVirtualMachine(ctx, name+tokens.OfVM, virtualMachine(ctx, v), append(opts,
		m.waitsFor(),
		pulumi.Protect(v.protect),
		pulumi.DeleteBeforeReplace(true),
		pulumi.IgnoreChanges(ignored))...)
}

// optional leaves an empty text out.
func optional(value string) pulumi.StringPtrInput {
	if value == "" {
		return nil
	}

	return pulumi.String(value)
}
