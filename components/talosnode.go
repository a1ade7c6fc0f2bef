package components

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/vm"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumiverse/pulumi-talos/sdk/go/talos/machine"

	"proxmox-talos/internal/marker"
	"proxmox-talos/internal/spec"
)

// TalosNodeType is the type token of [TalosNode].
const TalosNodeType = "talos-proxmox:node:TalosNode"

// TalosNodeArgs describe a node, its VM and its machine configuration. Zero values of the sizes take the defaults.
type TalosNodeArgs struct {
	Node    spec.Node
	Network spec.Network
	// Protect the VM against deletion.
	Protect bool
	// Configuration is the generated machine configuration of the node's role, secret; Patches are the node's own.
	Configuration pulumi.StringInput
	Patches       pulumi.StringArrayInput
	// Client is the Talos client configuration; a machine without configuration is reached without it.
	Client machine.ClientConfigurationInput
	// ISO is the volume that a machine with SourceISO boots and installs itself from: its template's VolumeID.
	ISO pulumi.StringInput
	// MadeAfter must exist before the VM: its template, and what is cloned before it. AppliedAfter must be done before its configuration is applied.
	MadeAfter, AppliedAfter []pulumi.Resource
	// AnswersWithin is how long the machine may take until it answers and its configuration is applied; default ten minutes.
	AnswersWithin time.Duration
	// Look asks Proxmox for the VM once it is there; nil = nobody asks.
	Look LookAtVM
}

// LookAtVM says what is known of a VM once the run has done with it. The error is what it lacks of what is planned.
type LookAtVM func(ctx context.Context, vm VM) (Seen, error)

// Seen is what is known of a VM.
type Seen struct {
	// Generation says which machine the VM is: another one after it was recreated, restored or rolled back, whose
	// configuration is then applied again; empty = not known.
	Generation string
	// Updates counts the runs that updated the VM, Remade those that found another machine than before.
	Updates, Remade int
}

// VM is a node's VM as it is planned, on the host that its resource says it is on.
type VM struct {
	Name, Host             string
	VMID, Cores, MemoryMiB int
	DisksGiB               map[string]int // by interface
	// Options are those of its cards and devices, by Proxmox' own names, such as net0 and bridge; an empty one is not there.
	Options map[string]map[string]string
}

// TalosNode is a VM made from a golden template, together with its machine configuration.
type TalosNode struct {
	pulumi.ResourceState

	VMID    pulumi.IntOutput    `pulumi:"vmid"`
	VMName  pulumi.StringOutput `pulumi:"vmName"`
	Host    pulumi.StringOutput `pulumi:"node"` // the Proxmox host, which Proxmox calls node
	Address pulumi.StringOutput `pulumi:"address"`
	MAC     pulumi.StringOutput `pulumi:"mac"`
	// Generation is the machine's own, as [LookAtVM] says; nil = not known.
	Generation pulumi.StringPtrOutput `pulumi:"generation"`
	// Updates counts the runs that updated the VM; the health gate follows it.
	Updates pulumi.IntOutput `pulumi:"updates"`
	// Remade counts the runs that found another machine than before; the bootstrap follows those of control planes.
	Remade pulumi.IntOutput `pulumi:"remade"`

	vm      *vm.VirtualMachine
	applied *machine.ConfigurationApply
}

// NewTalosNode makes the VM and gives it its configuration. A change of its sizes is made in place; a new template version leaves it as it is.
func NewTalosNode(ctx *pulumi.Context, name string, args TalosNodeArgs, opts ...pulumi.ResourceOption) (*TalosNode, error) {
	args = args.withDefaults()
	if err := args.validate(); err != nil {
		return nil, fmt.Errorf("node %q: %w", name, err)
	}

	c := &TalosNode{}
	if err := ctx.RegisterComponentResource(TalosNodeType, name, c, opts...); err != nil {
		return nil, fmt.Errorf("unable to register node %q: %w", name, err)
	}

	var err error
	if c.vm, err = c.machine(ctx, name, args); err != nil {
		return nil, fmt.Errorf("unable to register the VM of node %q: %w", name, err)
	}
	seen := c.look(ctx, args)
	c.Updates = seen.ApplyT(func(s any) int { return s.(Seen).Updates }).(pulumi.IntOutput)
	c.Remade = seen.ApplyT(func(s any) int { return s.(Seen).Remade }).(pulumi.IntOutput)
	c.Generation = seen.ApplyT(func(s any) *string {
		generation := s.(Seen).Generation
		if generation == "" {
			return nil
		}

		return &generation
	}).(pulumi.StringPtrOutput)
	if c.applied, err = c.apply(ctx, name, args); err != nil {
		return nil, fmt.Errorf("unable to register the machine configuration of node %q: %w", name, err)
	}

	// From the plan where the provider could only guess: it would ask the guest agent, which Talos may not have.
	c.VMID = c.vm.VmId
	c.VMName = c.vm.Name
	c.Host = c.vm.NodeName
	c.Address = pulumi.String(args.Node.Address.Addr().String()).ToStringOutput()
	c.MAC = pulumi.String(args.Node.MAC).ToStringOutput()
	if err := ctx.RegisterResourceOutputs(c, pulumi.Map{
		"vmid": c.VMID, "vmName": c.VMName, "node": c.Host, "address": c.Address, "mac": c.MAC, "generation": c.Generation, "updates": c.Updates, "remade": c.Remade,
	}); err != nil {
		return nil, fmt.Errorf("unable to register the outputs of node %q: %w", name, err)
	}

	return c, nil
}

// Made is the node's VM, Applied its applied machine configuration: what others may wait for.
func (c *TalosNode) Made() pulumi.Resource { return c.vm }

// Applied is the node's applied machine configuration: what others may wait for.
func (c *TalosNode) Applied() pulumi.Resource { return c.applied }

func (c *TalosNode) machine(ctx *pulumi.Context, name string, args TalosNodeArgs) (*vm.VirtualMachine, error) {
	// A running machine never follows its template, and follows the plan to another host only when that host is stated, or when its GPU is there: since it
	// cannot migrate then, it is replaced. The provider sees a difference in the disks' speed for ever, and never takes a name server out again.
	ignored := []string{"clone"}
	if !args.Node.HostPinned && len(args.Node.GPUs) == 0 {
		ignored = append(ignored, "nodeName")
	}
	if len(args.Network.DNS) == 0 {
		ignored = append(ignored, "initialization.dns")
	}
	ignored = append(ignored, "disks[0].speed")
	for i, d := range args.Node.ExtraDisks {
		if !d.Added { // the engine warns of a path that the state does not have
			ignored = append(ignored, fmt.Sprintf("disks[%d].speed", 1+i))
		}
		// A disk stays where it is attached: nothing re-attaches it, and earlier versions of this program used scsiN.
		if !d.InterfacePinned {
			ignored = append(ignored, fmt.Sprintf("disks[%d].interface", 1+i), fmt.Sprintf("disks[%d].ssd", 1+i))
		}
	}

	return vm.NewVirtualMachine(ctx, name+"-vm", virtualMachine(args.Node, args.Network, args.ISO, marker.Of(ctx.Organization(), ctx.Project(), ctx.Stack())),
		pulumi.Parent(c),
		pulumi.DependsOn(args.MadeAfter),
		pulumi.Protect(args.Protect),
		pulumi.DeleteBeforeReplace(true),
		pulumi.IgnoreChanges(ignored))
}

func (c *TalosNode) apply(ctx *pulumi.Context, name string, args TalosNodeArgs) (*machine.ConfigurationApply, error) {
	address := pulumi.String(args.Node.Address.Addr().String())
	after := append([]pulumi.Resource{c.vm}, args.AppliedAfter...)
	answers, err := c.answers(ctx, name, args)
	if err != nil {
		return nil, err
	}

	// Without timeouts, which means ten minutes: the published provider applies, then fails to save a state that has them (pulumiverse/pulumi-talos#208).
	return machine.NewConfigurationApply(ctx, name+"-configuration", &machine.ConfigurationApplyArgs{
		ApplyMode:                 pulumi.String("auto"),
		ClientConfiguration:       args.Client,
		ConfigPatches:             args.Patches,
		Endpoint:                  address,
		MachineConfigurationInput: args.Configuration,
		Node:                      address,
	},
		pulumi.Parent(c),
		pulumi.DependsOn(after),
		answers,
		// A new VM comes without configuration. One that Pulumi creates because somebody removed the former one is not
		// replaced, and one that was restored or rolled back has the configuration of that time.
		pulumi.ReplaceWith([]pulumi.Resource{c.vm}),
		pulumi.ReplacementTrigger(c.Generation))
}

// look is known once the VM is made. The VM is looked at for what is planned, not for what its resource says: where a
// change failed, the provider may read what is there in the next run, and call it done.
func (c *TalosNode) look(ctx *pulumi.Context, args TalosNodeArgs) pulumi.Output {
	n := args.Node
	planned := VM{
		Name: n.Name, VMID: n.VMID, Cores: n.Cores, MemoryMiB: n.MemoryMiB,
		DisksGiB: map[string]int{spec.SystemDisk: n.DiskGiB}, Options: optionsOf(n, args.Network),
	}
	for _, disk := range n.ExtraDisks {
		planned.DisksGiB[disk.Interface] = disk.SizeGiB
	}

	return pulumi.All(c.vm.ID(), c.vm.NodeName, c.vm.Cpu, c.vm.Memory, c.vm.Disks).ApplyT(func(made []any) (Seen, error) {
		if args.Look == nil {
			return Seen{}, nil
		}
		at := planned
		at.Host = made[1].(string)

		return args.Look(ctx.Context(), at)
	})
}

func (a TalosNodeArgs) withDefaults() TalosNodeArgs {
	n := &a.Node
	setDefault(&n.Cores, 2)
	setDefault(&n.MemoryMiB, 4096)
	setDefault(&n.DiskGiB, 40)
	setDefault(&n.Datastore, "local-lvm")
	setDefault(&n.CPUType, "host")
	setDefault(&a.Network.Bridge, "vmbr0")
	setDefault(&a.AnswersWithin, answersWithin)

	return a
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func (a TalosNodeArgs) validate() error {
	n := a.Node
	var problems []error
	for _, required := range []struct {
		missing bool
		message string
	}{
		{n.Name == "", "no name: state one"},
		{n.Host == "", "no host: state one"},
		{n.VMID == 0, "no VMID: state one from 100 on"},
		{n.MAC == "", "no MAC address: state one, like 02:00:00:00:00:01"},
		{!n.Address.IsValid(), "no address: state one with its prefix length, or the one the router reserves"},
		{a.Configuration == nil || a.Client == nil, "no machine configuration: pass Configuration and Client"},
		{n.Template.Source == spec.SourceImage && n.Template.VMID == 0, "no template to clone: state its VMID, or use the source iso"},
		{n.Template.Source == spec.SourceISO && a.ISO == nil, "no ISO to boot: pass the VolumeID of its template"},
		{n.Linked && n.Datastore != n.Template.Datastore, "a linked clone stays on its template's datastore: use a full clone or the same datastore"},
	} {
		if required.missing {
			problems = append(problems, errors.New(required.message))
		}
	}

	return errors.Join(problems...)
}
