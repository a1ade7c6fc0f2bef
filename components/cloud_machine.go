package components

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/vm"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/systems"
	"talos-proxmox/internal/tokens"
	"talos-proxmox/internal/vmlookup"
)

// CloudMachineType is the type token of [CloudMachine].
const CloudMachineType = tokens.CloudMachine

// CloudMachineArgs describe a machine that cloud-init sets up at its first start.
type CloudMachineArgs struct {
	// The name of the VM, and the machine's host name. Default: the resource's name.
	Name string `pulumi:"name,optional"`
	// The purpose of the machine, for the VM's description. Default: machine and its name.
	About string `pulumi:"about,optional"`
	// The VM. It needs a template; agent states whether the template has the guest agent.
	Machine Machine `pulumi:"machine"`
	// The VM's hardware, as the template's system needs it. Default: that of Linux cloud images.
	Hardware *Hardware `pulumi:"hardware,optional"`
	// The network of its first network device. Default: by DHCP on vmbr0.
	Network *Network `pulumi:"network,optional"`
	// The DNS search domain, and the domain of the host name. Default: the Proxmox host's.
	SearchDomain string `pulumi:"searchDomain,optional"`
	// The address with its prefix length, 10.0.0.60/24. Default: none, the machine uses DHCP.
	Address pulumi.StringInput `pulumi:"address,optional"`
	// The address in the IPv6 network with its prefix length, fd00:1::60/64. Default: none.
	AddressIPv6 netip.Prefix `pulumi:"addressIpv6,optional" provider:"type=go@1:netip:text"`
	// The user that cloud-init creates.
	User string `pulumi:"user"`
	// The user's public SSH keys. Default: none.
	SSHKeys []string `pulumi:"sshKeys,optional"`
	// The user's password or its hash, secret. Default: none.
	Password pulumi.StringInput `pulumi:"password,optional" provider:"secret"`
	// Protect the VM against deletion. Default: false.
	Protect bool `pulumi:"protect,optional"`
	// The output vmid of a machine that is cloned before: Proxmox creates one volume on a datastore at a time. Default:
	// none.
	After pulumi.IntInput `pulumi:"after,optional"`
}

// Hardware is the hardware of a machine's system.
//
// Its fields, from their own comments (make schema):
//   - OSType string: The kind of system. Default: l26.
//   - Machine string: The machine type. Default: q35.
//   - BIOS string: The firmware, ovmf or seabios. Default: ovmf.
//   - SystemDisk string: The interface of the template's system disk. Default: scsi0.
//   - CloudInitDrive string: The interface of the cloud-init drive. Kernels of cloud images do not see one at ide2.
//     Default: scsi1.
//   - Display string: The display. Default: serial0, a console without graphics.
//   - SecureBoot bool: Whether Secure Boot is enabled. Default: false.
type Hardware = systems.Hardware

// CloudMachine is a VM cloned from a template of a system other than Talos, and configured by cloud-init.
type CloudMachine struct {
	pulumi.ResourceState

	// The VMID.
	VMID pulumi.IntOutput `pulumi:"vmid"`
	// The VM's name.
	VMName pulumi.StringOutput `pulumi:"vmName"`
	// The name of the Proxmox host.
	Host pulumi.StringOutput `pulumi:"host"`
	// The machine's address; with DHCP the one that the guest agent reports, empty until then.
	Address pulumi.StringOutput `pulumi:"address"`
	// The MAC address of the first network device.
	MAC pulumi.StringOutput `pulumi:"mac"`
	// The machine's generation (vmgenid), which identifies recreated and restored machines; set only by the program that
	// reads stack files.
	Generation pulumi.StringPtrOutput `pulumi:"generation"`
	// The machine's creation id, by which the stack recognizes it: the UUID of its SMBIOS, which every creation renews and
	// rollbacks keep; set only by the program that reads stack files.
	CreationID pulumi.StringPtrOutput `pulumi:"creationId"`
	// How many runs updated the VM.
	Updates pulumi.IntOutput `pulumi:"updates"`
	// How many runs found a recreated machine.
	Recreations pulumi.IntOutput `pulumi:"remade"`
}

// How long the guest agent may take to answer. With DHCP, it reports the address.
const (
	staticAgentTimeout = "2s"
	dhcpAgentTimeout   = "180s"
)

// NewCloudMachine creates the VM. Its sizes are changed in place. A new template or another user does not affect an
// existing machine: cloud-init sets it up at its first start.
func NewCloudMachine(
	ctx *pulumi.Context, name string, args CloudMachineArgs, opts ...pulumi.ResourceOption,
) (*CloudMachine, error) {
	args = args.withDefaults(name)
	if err := args.validate(name); err != nil {
		return nil, err
	}

	c := &CloudMachine{}

	return register(ctx, CloudMachineType, "machine", name, c, opts, step{"the VM of ", func() error {
		return c.registerVM(ctx, name, args)
	}})
}

func (c *CloudMachine) registerVM(ctx *pulumi.Context, name string, args CloudMachineArgs) error {
	timeout := staticAgentTimeout
	if args.Network.DHCP {
		timeout = dhcpAgentTimeout
	}

	machine, err := registerVM(ctx, name, vmSpec{
		name: args.Name, description: args.About, machine: args.Machine, network: *args.Network, hardware: *args.Hardware,
		agentTimeout: timeout, initialization: args.initialization(), protect: args.Protect,
	}, []string{"initialization.userAccount"}, c, waitFor(args.After))
	if err != nil {
		return err
	}

	c.VMID, c.VMName, c.Host = machine.VmId, machine.Name, machine.NodeName
	c.MAC = pulumi.String(args.Machine.MAC).ToStringOutput()
	c.Address = args.addressOutput(machine)
	seen := newLookupOutputs(lookUpVM(ctx, machine, vmlookup.VM{Name: args.Name, VMID: args.Machine.VMID}))
	c.Generation, c.CreationID, c.Updates, c.Recreations = seen.generation, seen.creationID, seen.updates, seen.remade

	return registerHA(ctx, name, args.Name, args.Machine, haGroup{}, pulumi.Parent(c),
		pulumi.DependsOn([]pulumi.Resource{machine}), pulumi.ReplaceWith([]pulumi.Resource{machine}))
}

// initialization returns the contents of the cloud-init drive. The template disables package upgrades at the first
// start, because the provider cannot.
func (a CloudMachineArgs) initialization() vm.VirtualMachineInitializationArgs {
	args := vm.VirtualMachineInitializationArgs{
		DatastoreId: pulumi.String(a.Machine.Datastore),
		Interface:   pulumi.String(a.Hardware.CloudInitDrive),
		IpConfigs: vm.VirtualMachineInitializationIpConfigArray{
			ipConfig(*a.Network, a.Address, a.AddressIPv6),
		},
	}

	for _, card := range a.Machine.ExtraNICs {
		address := vm.VirtualMachineInitializationIpConfigIpv4Args{Address: pulumi.String("dhcp")}
		if card.Address.IsValid() {
			address.Address = pulumi.String(card.Address.String())
		}

		args.IpConfigs = append(args.IpConfigs.(vm.VirtualMachineInitializationIpConfigArray),
			vm.VirtualMachineInitializationIpConfigArgs{Ipv4: address})
	}

	if len(a.Network.DNS) > 0 || a.SearchDomain != "" {
		args.Dns = vm.VirtualMachineInitializationDnsArgs{
			Servers: nameServers(*a.Network), Domain: optionalString(a.SearchDomain),
		}
	}

	user := vm.VirtualMachineInitializationUserAccountArgs{
		Username: pulumi.String(a.User), Keys: pulumi.ToStringArray(a.SSHKeys),
	}
	if a.Password != nil {
		user.Password = pulumi.ToSecret(a.Password).(pulumi.StringOutput).ToStringPtrOutput()
	}

	args.UserAccount = user

	return args
}

// addressOutput returns the planned address, or with DHCP the one that the guest agent reports for the first card.
func (a CloudMachineArgs) addressOutput(machine *vm.VirtualMachine) pulumi.StringOutput {
	if !a.Network.DHCP {
		return addressText(parsedAddress(a.Address))
	}

	return pulumi.All(machine.MacAddresses, machine.Ipv4Addresses).ApplyT(func(values []any) string {
		macs, _ := values[0].([]string)
		addresses, _ := values[1].([][]string)

		for i, mac := range macs {
			if strings.EqualFold(mac, a.Machine.MAC) && i < len(addresses) && len(addresses[i]) > 0 {
				return addresses[i][0]
			}
		}

		return ""
	}).(pulumi.StringOutput)
}

func (a CloudMachineArgs) withDefaults(name string) CloudMachineArgs {
	setDefault(&a.Name, name)
	setDefault(&a.About, "machine "+a.Name)
	a.Machine = a.Machine.withDefaults()
	a.Network = new(networkWithDefaults(orZero(a.Network)))
	a.Network.DHCP = a.Network.DHCP || a.Address == nil
	a.Hardware = new(hardwareWithDefaults(orZero(a.Hardware)))

	return a
}

func hardwareWithDefaults(h Hardware) Hardware {
	setDefault(&h.OSType, "l26")
	setDefault(&h.Machine, "q35")
	setDefault(&h.BIOS, biosOVMF)
	setDefault(&h.SystemDisk, "scsi0")
	setDefault(&h.CloudInitDrive, "scsi1")
	setDefault(&h.Display, "serial0")

	return h
}

func (a CloudMachineArgs) validate(name string) error {
	found := &problem.List{}

	a.Machine.validate("machine.", found)
	validateNetwork(*a.Network, "network.", found)
	validateIPv6("addressIpv6", *a.Network, a.AddressIPv6, found)
	required(found, "user", a.User, "the user that cloud-init creates, such as debian")

	if a.Machine.Template == nil {
		found.Add("machine.template", nil, "is missing; set the VMID of the template that the machine is cloned from")
	}

	if a.Network.DHCP && a.Address != nil {
		found.Add("address", nil, "is set, and network.dhcp too; set one of the two")
	}

	for i, card := range a.Machine.ExtraNICs {
		if card.NoAddress {
			found.Add(fmt.Sprintf("machine.extraNics[%d].noAddress", i), true, "is for machines with Talos; remove it, or set address")
		}
	}

	for i, disk := range a.Machine.ExtraDisks {
		if disk.Interface == a.Hardware.SystemDisk || disk.Interface == a.Hardware.CloudInitDrive {
			found.Add(fmt.Sprintf("machine.extraDisks[%d].interface", i), disk.Interface,
				"is the interface of the system disk or of the cloud-init drive; choose another, such as virtio1")
		}
	}

	return problemsOf("machine", name, found)
}
