package engine_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"

	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve"
	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/download"
	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/hardware/mapping"
	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/permission"
	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/user"
	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/vm"
	"github.com/pulumi/pulumi-command/sdk/go/command/local"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumiverse/pulumi-talos/sdk/go/talos/machine"

	"talos-proxmox/internal/request"
	"talos-proxmox/internal/tlsprobe"
)

// draft is a plan under construction, of the published resource types. Its resources pass all policies unless they are
// changed.
type draft struct {
	ctx *pulumi.Context
	n   int // number of machines, which their IDs derive from
	err error
}

type change = func(*vm.VirtualMachineArgs)

// cp, worker and other add machines on a host: a control plane and a worker of cluster one, and one that is no Talos
// node.
func (d *draft) cp(host string, changes ...change) {
	d.machine(2000, host, []string{"cluster-one", "controlplane", "talos"}, nil, changes)
}

func (d *draft) worker(host string, changes ...change) {
	d.machine(3000, host, []string{"cluster-one", "talos", "worker"}, nil, changes)
}

func (d *draft) gpu(host, device string, changes ...change) {
	d.machine(4000, host, []string{"cluster-one", "talos", "worker"}, nil, append([]change{func(a *vm.VirtualMachineArgs) {
		a.Hostpcis = vm.VirtualMachineHostpciArray{
			vm.VirtualMachineHostpciArgs{
				Device:  pulumi.String("hostpci0"),
				Mapping: pulumi.String(device),
				Pcie:    pulumi.Bool(true),
				Rombar:  pulumi.Bool(true),
			},
		}
	}}, changes...))
}

func (d *draft) other(host string, changes ...change) {
	d.machine(200, host, []string{"debian"}, nil, changes)
}

func (d *draft) machine(first int, host string, tags []string, opts []pulumi.ResourceOption, changes []change) {
	d.n++
	args := &vm.VirtualMachineArgs{
		Name:     pulumi.Sprintf("m-%d", d.n),
		VmId:     pulumi.Int(first + d.n),
		NodeName: pulumi.String(host),
		Tags:     pulumi.ToStringArray(tags),
		Started:  pulumi.Bool(false),
		Cpu:      vm.VirtualMachineCpuArgs{Cores: pulumi.Int(2), Sockets: pulumi.Int(1)},
		Memory:   vm.VirtualMachineMemoryArgs{Dedicated: pulumi.Int(4096), Floating: pulumi.Int(0)},
		Disks: vm.VirtualMachineDiskArray{
			vm.VirtualMachineDiskArgs{
				Interface: pulumi.String("scsi0"), DatastoreId: pulumi.String("local-lvm"), Size: pulumi.Int(20),
			},
		},
		NetworkDevices: vm.VirtualMachineNetworkDeviceArray{card(fmt.Sprintf("02:00:00:00:00:%02X", d.n))},
		Initialization: cloudInit(fmt.Sprintf("10.0.0.%d/24", d.n)),
	}

	for _, change := range changes {
		change(args)
	}

	_, err := vm.NewVirtualMachine(d.ctx, fmt.Sprintf("m-%d-vm", d.n), args, opts...)
	d.record(err)
}

func (d *draft) record(err error) {
	if d.err == nil {
		d.err = err
	}
}

func card(mac string) vm.VirtualMachineNetworkDeviceArgs {
	return vm.VirtualMachineNetworkDeviceArgs{
		Bridge: pulumi.String("vmbr0"), MacAddress: pulumi.String(mac), Model: pulumi.String("virtio"),
	}
}

func cloudInit(address string) vm.VirtualMachineInitializationArgs {
	return vm.VirtualMachineInitializationArgs{
		DatastoreId: pulumi.String("local-lvm"),
		IpConfigs: vm.VirtualMachineInitializationIpConfigArray{vm.VirtualMachineInitializationIpConfigArgs{
			Ipv4: vm.VirtualMachineInitializationIpConfigIpv4Args{Address: pulumi.String(address)},
		}},
	}
}

// Changes of a machine.

func vmid(id int) change { return func(a *vm.VirtualMachineArgs) { a.VmId = pulumi.Int(id) } }

func device(args vm.VirtualMachineHostpciArgs) change {
	return func(a *vm.VirtualMachineArgs) {
		args.Device = pulumi.String("hostpci0")
		a.Hostpcis = vm.VirtualMachineHostpciArray{args}
	}
}

func asTemplate(a *vm.VirtualMachineArgs) { a.Template = pulumi.Bool(true) }

// download adds a download of a URL to a file name.
func (d *draft) download(name, url string, change func(*download.FileArgs)) {
	args := &download.FileArgs{
		ContentType: pulumi.String("iso"),
		DatastoreId: pulumi.String("local"),
		NodeName:    pulumi.String("pve1"),
		FileName:    pulumi.String(name),
		Url:         pulumi.String(url),
		Overwrite:   pulumi.Bool(false),
	}
	if change != nil {
		change(args)
	}

	_, err := download.NewFile(d.ctx, name, args)
	d.record(err)
}

func checksum(a *download.FileArgs) {
	a.Checksum, a.ChecksumAlgorithm = pulumi.String(
		"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
	), pulumi.String("sha256")
}

// command adds a local command.
func (d *draft) command(args *local.CommandArgs, opts ...pulumi.ResourceOption) {
	_, err := local.NewCommand(d.ctx, "command", args, opts...)
	d.record(err)
}

// secrets adds Talos secrets of a version contract.
func (d *draft) secrets(contract string, opts ...pulumi.ResourceOption) {
	_, err := machine.NewSecrets(d.ctx, "secrets", &machine.SecretsArgs{TalosVersion: pulumi.String(contract)}, opts...)
	d.record(err)
}

// configuration adds the command that applies a node's configuration, with a document; empty = none.
func (d *draft) configuration(name, address, document string, opts ...pulumi.ResourceOption) {
	request, err := json.Marshal(request.Apply{
		Machine:       tlsprobe.Machine{Name: name, Address: netip.MustParseAddr(address)},
		Configuration: cmp.Or(document, "machine: {type: worker}\n"),
	})
	d.record(err)

	_, err = local.NewCommand(d.ctx, name, &local.CommandArgs{
		Create: pulumi.String("talosops apply"), Stdin: pulumi.ToSecret(pulumi.String(request)).(pulumi.StringOutput),
	}, opts...)
	d.record(err)
}

func installer(image string) string { return "machine: {install: {image: \"" + image + "\"}}\n" }

// component registers one of the program's components by its type.
func (d *draft) component(token, name string) pulumi.Resource {
	c := &pulumi.ResourceState{}
	d.record(d.ctx.RegisterComponentResource(token, name, c))

	return c
}

// mapping adds a PCI mapping with a device on each host.
func (d *draft) mapping(name string, hosts ...string) {
	maps := mapping.PciMapTypeArray{}
	for i, host := range hosts {
		maps = append(
			maps,
			mapping.PciMapTypeArgs{
				Node:       pulumi.String(host),
				Id:         pulumi.String("10de:2204"),
				Path:       pulumi.Sprintf("0000:0%d:00.0", i+1),
				IommuGroup: pulumi.Int(i),
			},
		)
	}

	_, err := mapping.NewPci(d.ctx, name, &mapping.PciArgs{Name: pulumi.String(name), Maps: maps})
	d.record(err)
}

// provider adds a worker with its own Proxmox provider.
func (d *draft) provider(args *proxmoxve.ProviderArgs, changes ...change) {
	p, err := proxmoxve.NewProvider(d.ctx, "provider", args)
	d.record(err)

	if d.err == nil {
		d.machine(3000, "pve1", []string{"debian"}, []pulumi.ResourceOption{pulumi.Provider(p)}, changes)
	}
}

// role adds a role with these privileges.
func (d *draft) role(privileges ...string) {
	_, err := permission.NewRole(
		d.ctx, "role",
		&permission.RoleArgs{RoleId: pulumi.String("TalosProxmox"), Privileges: pulumi.ToStringArray(privileges)},
	)
	d.record(err)
}

// rule adds an ACL with a role on a path.
func (d *draft) rule(role, path string, args *proxmoxve.AclArgs) {
	args.RoleId, args.Path = pulumi.String(role), pulumi.String(path)
	_, err := proxmoxve.NewAcl(d.ctx, "rule of "+role, args)
	d.record(err)
}

// account adds a user with roles on /.
func (d *draft) account(id string, roles ...string) *permission.User {
	acls := permission.UserAclArray{}
	for _, role := range roles {
		acls = append(acls, permission.UserAclArgs{Path: pulumi.String("/"), RoleId: pulumi.String(role)})
	}

	u, err := permission.NewUser(d.ctx, "user", &permission.UserArgs{UserId: pulumi.String(id), Acls: acls})
	d.record(err)

	return u
}

// token adds a token and its user; separated is nil if it is not set.
func (d *draft) token(separated pulumi.BoolPtrInput) {
	owner := d.account("pulumi@pve", "PVEAuditor")

	if d.err == nil {
		_, err := user.NewToken(
			d.ctx, "token",
			&user.TokenArgs{UserId: owner.UserId, TokenName: pulumi.String("talos"), PrivilegesSeparation: separated},
		)
		d.record(err)
	}
}
