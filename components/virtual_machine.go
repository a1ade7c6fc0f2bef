package components

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/vm"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/internal/ownership"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/tokens"
)

// cdromDrive is the CD drive's interface. A q35 machine has no other IDE interfaces than ide0 and ide2.
const cdromDrive = "ide0"

// talosHardware is the hardware of nodes' VMs.
var talosHardware = Hardware{
	OSType: "l26", Machine: "q35", BIOS: biosOVMF, SystemDisk: "scsi0", CloudInitDrive: "ide2", Display: "std",
}

// biosOVMF is UEFI firmware, which stores its settings on an EFI disk.
const biosOVMF = "ovmf"

// vmSpec describes a VM of any operating system.
type vmSpec struct {
	name        string
	description string // for people
	machine     Machine
	network     Network
	hardware    Hardware
	// agentTimeout limits how long each create and refresh waits for the guest agent.
	agentTimeout   string
	initialization vm.VirtualMachineInitializationArgs
	protect        bool
	// volumes are the paths in their datastores of the disks that outlive the machine, by the names of the volumes; set by
	// registerVM.
	volumes map[string]pulumi.StringOutput
}

// Time limits in seconds. The provider's defaults are half an hour for every step, which hides failures.
const (
	createTimeout = 1800
	bootTimeout   = 600
	stopTimeout   = 300
)

// vmArgs sets every property that the provider would otherwise guess: several of its defaults differ from what Proxmox
// reports, and make each later run fail or change something.
func vmArgs(ctx *pulumi.Context, v vmSpec) *vm.VirtualMachineArgs {
	m := v.machine

	args := &vm.VirtualMachineArgs{
		Name:     pulumi.String(v.name),
		VmId:     pulumi.Int(m.VMID),
		NodeName: pulumi.String(m.Host),
		// The provider sends name and description with the clone request, so even an incomplete VM has its owner's marker.
		Description: pulumi.String(ownership.Node(stackOwner(ctx), v.description)),
		Tags:        pulumi.ToStringArray(m.Tags),
		PoolId:      optionalString(m.ResourcePool),

		Started:  pulumi.Bool(true),
		OnBoot:   pulumi.Bool(*m.OnBoot),
		Reboot:   pulumi.Bool(false),
		Template: pulumi.Bool(false),
		// Proxmox' flag protects against other clients; Pulumi's protection refuses first. An `up` has to lift both before
		// the next one deletes the VM: the provider would stop it before Proxmox refuses the deletion.
		Protection:   pulumi.Bool(v.protect),
		Migrate:      pulumi.Bool(!m.hasDevices()), // a VM cannot migrate with its device
		Acpi:         pulumi.Bool(true),
		TabletDevice: pulumi.Bool(false),
		// Talos does not react to a long ACPI shutdown, and the disks of any machine are deleted with it.
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
			Affinity:   optionalString(m.CPUAffinity),
		},
		Memory: vm.VirtualMachineMemoryArgs{
			Dedicated: pulumi.Int(m.Memory),
			Floating:  pulumi.Int(0),
			Shared:    pulumi.Int(0),
			Hugepages: optionalString(spec.Hugepages(m.HugepagesMiB)),
		},
		Agent: vm.VirtualMachineAgentArgs{
			Enabled: pulumi.Bool(m.Agent),
			Timeout: pulumi.String(v.agentTimeout),
			Trim:    pulumi.Bool(false),
			Type:    pulumi.String("virtio"),
		},

		Disks:          disks(ctx, v),
		NetworkDevices: networkDevices(m, v.network),
		Initialization: v.initialization,
		Hostpcis:       hostPCIs(ctx, m.PCIDevices),
		Usbs:           usbs(ctx, m.USBDevices),

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

	setFirmware(args, v)
	setOrigin(ctx, args, m)

	return args
}

// setFirmware sets the disk of UEFI's variables, and that of the TPM.
func setFirmware(args *vm.VirtualMachineArgs, v vmSpec) {
	if v.hardware.BIOS == biosOVMF {
		args.EfiDisk = vm.VirtualMachineEfiDiskArgs{
			DatastoreId:     pulumi.String(v.machine.Datastore),
			FileFormat:      pulumi.String("raw"),
			PreEnrolledKeys: pulumi.Bool(v.hardware.SecureBoot),
			Type:            pulumi.String("4m"),
		}
	}

	if v.machine.TPM {
		args.TpmState = vm.VirtualMachineTpmStateArgs{
			DatastoreId: pulumi.String(v.machine.Datastore), Version: pulumi.String("v2.0"),
		}
	}
}

// setOrigin sets what the VM is made from: a clone of the template, or a blank disk and the ISO that installs to it.
func setOrigin(ctx *pulumi.Context, args *vm.VirtualMachineArgs, m Machine) {
	var medium pulumi.StringInput = pulumi.String("none")
	if m.Template == nil {
		medium = detachedString(ctx, m.ISO)
		args.BootOrders = pulumi.StringArray{pulumi.String(talosHardware.SystemDisk), pulumi.String(cdromDrive)}
	} else {
		clone := vm.VirtualMachineCloneArgs{
			VmId:     detachedInt(ctx, m.Template),
			NodeName: pulumi.String(m.Host),
			Full:     pulumi.Bool(!m.Linked),
			Retries:  pulumi.Int(3),
		}
		if !m.Linked { // Proxmox refuses a datastore for a linked clone
			clone.DatastoreId = pulumi.String(m.Datastore)
		}

		args.Clone = clone
	}

	args.Cdrom = vm.VirtualMachineCdromArgs{
		Enabled:   pulumi.Bool(true),
		FileId:    medium,
		Interface: pulumi.String(cdromDrive),
	}
}

// disks returns the disks' arguments. The provider leaves a clone's system disk the options of the template's.
func disks(ctx *pulumi.Context, v vmSpec) vm.VirtualMachineDiskArray {
	m := v.machine
	first := diskWithDefaults(Disk{Interface: v.hardware.SystemDisk, SizeGiB: m.DiskSize}, m.Datastore)

	list := vm.VirtualMachineDiskArray{disk(first)}
	for _, extra := range m.ExtraDisks {
		args := disk(extra)
		if extra.Volume != "" {
			args.PathInDatastore = detachedString(ctx, v.volumes[extra.Volume]).ToStringPtrOutput()
		}

		list = append(list, args)
	}

	return list
}

// disk returns a disk's arguments. Proxmox has no ssd flag for virtio disks.
func disk(d Disk) vm.VirtualMachineDiskArgs {
	discard := "ignore"
	if *d.Discard {
		discard = "on"
	}

	return vm.VirtualMachineDiskArgs{
		Interface:   pulumi.String(d.Interface),
		DatastoreId: pulumi.String(d.Datastore),
		Size:        pulumi.Int(d.SizeGiB),
		FileFormat:  pulumi.String("raw"),
		Aio:         pulumi.String(d.AIO),
		Backup:      pulumi.Bool(true),
		Cache:       pulumi.String(d.Cache),
		Discard:     pulumi.String(discard),
		Iothread:    pulumi.Bool(d.IOThread),
		Replicate:   pulumi.Bool(true),
		Ssd:         pulumi.Bool(*d.SSD && !d.IsVirtIO()),
	}
}

// hostPCIs passes devices through, by mapping or by address. It sets Proxmox' own defaults of pcie and rombar, because
// the provider would disable the ROM.
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
			device.Mapping = detachedString(ctx, d.Mapping)
		}

		list = append(list, device)
	}

	return list
}

// usbs passes USB devices through, by mapping. Machines of today have one controller for all speeds.
func usbs(ctx *pulumi.Context, devices []USBDevice) vm.VirtualMachineUsbArray {
	var list vm.VirtualMachineUsbArray
	for _, d := range devices {
		list = append(list, vm.VirtualMachineUsbArgs{Mapping: detachedString(ctx, d.Mapping), Usb3: pulumi.Bool(true)})
	}

	return list
}

func networkDevices(m Machine, n Network) vm.VirtualMachineNetworkDeviceArray {
	first := NIC{Bridge: n.Bridge, VLAN: n.VLAN, MTU: n.MTU, MAC: m.MAC}

	list := vm.VirtualMachineNetworkDeviceArray{networkDevice(m, first)}
	for _, card := range m.ExtraNICs {
		list = append(list, networkDevice(m, card))
	}

	return list
}

func networkDevice(m Machine, card NIC) vm.VirtualMachineNetworkDeviceArgs {
	args := vm.VirtualMachineNetworkDeviceArgs{
		Bridge:       pulumi.String(card.Bridge),
		MacAddress:   pulumi.String(strings.ToUpper(card.MAC)), // as Proxmox writes it
		Model:        pulumi.String("virtio"),
		Enabled:      pulumi.Bool(true),
		Disconnected: pulumi.Bool(false),
		Firewall:     pulumi.Bool(m.Firewall && card.HasAddress()),
	}
	if card.VLAN > 0 {
		args.VlanId = pulumi.Int(card.VLAN)
	}

	if card.MTU > 0 {
		args.Mtu = pulumi.Int(card.MTU)
	}

	if m.NICQueues > 0 {
		args.Queues = pulumi.Int(m.NICQueues)
	}

	return args
}

// initialization returns the nocloud network data, from which a machine has its address before it is configured. It has
// no user data, which Talos does not need, and only the first network card: the machine configuration has the others,
// and the provider cannot remove a card again, which would be a change in every run.
func (a TalosNodeArgs) initialization() vm.VirtualMachineInitializationArgs {
	args := vm.VirtualMachineInitializationArgs{
		DatastoreId: pulumi.String(a.Machine.Datastore),
		Interface:   pulumi.String(talosHardware.CloudInitDrive),
		IpConfigs: vm.VirtualMachineInitializationIpConfigArray{
			ipConfig(*a.Network, a.Address, a.AddressIPv6),
		},
	}
	if len(a.Network.DNS) > 0 {
		args.Dns = vm.VirtualMachineInitializationDnsArgs{Servers: nameServers(*a.Network)}
	}

	return args
}

// ipConfig returns the address configuration of the first network card.
func ipConfig(n Network, address pulumi.StringInput, ipv6 netip.Prefix) vm.VirtualMachineInitializationIpConfigArgs {
	ipv4 := vm.VirtualMachineInitializationIpConfigIpv4Args{Address: pulumi.String("dhcp")}
	if !n.DHCP {
		ipv4.Address, ipv4.Gateway = address.ToStringOutput().ToStringPtrOutput(), optionalString(textOf(n.Gateway))
	}

	config := vm.VirtualMachineInitializationIpConfigArgs{Ipv4: ipv4}
	if ipv6.IsValid() {
		config.Ipv6 = vm.VirtualMachineInitializationIpConfigIpv6Args{
			Address: pulumi.String(ipv6.String()), Gateway: optionalString(textOf(orZero(n.IPv6).Gateway)),
		}
	}

	return config
}

func nameServers(n Network) (list pulumi.StringArray) {
	for _, server := range n.DNS {
		list = append(list, pulumi.String(server.String()))
	}

	return list
}

// registerVM registers a VM and ignores changes that must not reach a running one. It never follows a new template. It
// moves to another host only if its host is pinned; with a device of its host it cannot migrate and is replaced. The
// provider sees a difference in the disks' speed forever.
func registerVM(
	ctx *pulumi.Context, name string, v vmSpec, ignored []string, parent pulumi.Resource, opts ...pulumi.ResourceOption,
) (*vm.VirtualMachine, error) {
	m := v.machine

	var err error
	if v.volumes, err = registerVolumes(ctx, name, v, parent); err != nil {
		return nil, err
	}

	ignored = append([]string{"clone"}, ignored...)
	if !m.HostPinned && !m.hasDevices() {
		ignored = append(ignored, "nodeName")
	}

	if v.initialization.Dns == nil { // the provider cannot remove name servers
		ignored = append(ignored, "initialization.dns")
	}

	ignored = append(ignored, "disks[0].speed")

	for i, d := range m.ExtraDisks {
		if !d.Added { // the engine warns about paths that the state does not have
			ignored = append(ignored, fmt.Sprintf("disks[%d].speed", 1+i))
		}
		// A disk keeps its interface: nothing re-attaches it, and earlier versions of this program used scsiN.
		if !d.InterfacePinned {
			ignored = append(ignored, fmt.Sprintf("disks[%d].interface", 1+i), fmt.Sprintf("disks[%d].ssd", 1+i))
		}
		// A disk keeps its volume too. The provider resizes only disks that have the machine's VMID; the volume's command
		// resizes this one.
		if d.Volume != "" && !d.Added {
			ignored = append(ignored, fmt.Sprintf("disks[%d].pathInDatastore", 1+i), fmt.Sprintf("disks[%d].size", 1+i))
		}
	}

	volumes := make([]pulumi.Input, 0, len(v.volumes))
	for _, path := range v.volumes {
		volumes = append(volumes, path)
	}

	opts = append(opts,
		pulumi.Parent(parent),
		m.dependsOn(),
		waitFor(volumes...),
		pulumi.Protect(v.protect),
		pulumi.DeleteBeforeReplace(true),
		pulumi.IgnoreChanges(ignored))

	return onOwnStack(func() (*vm.VirtualMachine, error) {
		return vm.NewVirtualMachine(ctx, name+tokens.OfVM, vmArgs(ctx, v), opts...)
	})
}

// optionalString returns nil for an empty string.
func optionalString(value string) pulumi.StringPtrInput {
	if value == "" {
		return nil
	}

	return pulumi.String(value)
}
