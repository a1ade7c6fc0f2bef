package components

import (
	"fmt"

	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/hardware/mapping"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/internal/ownership"
	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/tokens"
)

// PCIMappingType is the type token of [PCIMapping].
const PCIMappingType = "talos-proxmox:host:PCIMapping"

// MappedDevice is a device of a host, with everything by which Proxmox identifies it. Proxmox considers an entry
// without group or subsystem incomplete.
type MappedDevice struct {
	// The name of the Proxmox host: pve1.
	Host string `pulumi:"host"`
	// The device's PCI address: 0000:01:00 for all functions of the device, 0000:01:00.0 for one.
	PCI string `pulumi:"pci"`
	// Vendor and device id in hexadecimal: 10de:27b0.
	ID pulumi.StringInput `pulumi:"id"`
	// Subsystem vendor and device id: 10de:16fa.
	Subsystem pulumi.StringInput `pulumi:"subsystem"`
	// The device's IOMMU group.
	Group pulumi.IntInput `pulumi:"group"`
}

// PCIMappingArgs describe a mapping.
type PCIMappingArgs struct {
	// The devices, all of one kind. At least one.
	Devices []MappedDevice `pulumi:"devices"`
	// The outputs ready of their hosts' preparations. Default: none.
	HostsReady pulumi.StringArrayInput `pulumi:"hostsReady,optional"`
}

// PCIMapping is a PCI mapping in Proxmox: a name for devices of one kind. Proxmox gives a starting machine a free
// device of its host. Its name is the resource's.
type PCIMapping struct {
	pulumi.ResourceState

	// The mapping's name, for machines, which wait for the mapping when they use it.
	Name pulumi.StringOutput `pulumi:"name"`
}

// NewPCIMapping creates the mapping through the API, and updates it in place when devices change. Its comment names the
// stack that created it.
func NewPCIMapping(
	ctx *pulumi.Context, name string, args PCIMappingArgs, opts ...pulumi.ResourceOption,
) (*PCIMapping, error) {
	if err := args.validate(name); err != nil {
		return nil, err
	}

	c := &PCIMapping{}

	return register(ctx, PCIMappingType, "PCI mapping", name, c, opts, step{"", func() error {
		return c.registerMapping(ctx, name, args)
	}})
}

func (c *PCIMapping) registerMapping(ctx *pulumi.Context, name string, args PCIMappingArgs) error {
	maps := make(mapping.PciMapTypeArray, 0, len(args.Devices))
	for _, device := range args.Devices {
		maps = append(maps, mapping.PciMapTypeArgs{
			Id:          device.ID,
			Node:        pulumi.String(device.Host),
			Path:        pulumi.String(device.PCI),
			IommuGroup:  device.Group.ToIntOutput().ToIntPtrOutput(),
			SubsystemId: device.Subsystem.ToStringOutput().ToStringPtrOutput(),
		})
	}

	registered, err := mapping.NewPci(ctx, name+tokens.OfMapping, &mapping.PciArgs{
		Name:            pulumi.String(name),
		Comment:         pulumi.String(ownership.Mapping(stackOwner(ctx))),
		MediatedDevices: pulumi.Bool(false),
		Maps:            maps,
	}, pulumi.Parent(c), waitFor(args.HostsReady))
	if err != nil {
		return err
	}

	c.Name = valueAfter(ctx, name, registered)

	return nil
}

func (a PCIMappingArgs) validate(name string) error {
	found := &problem.List{}
	if len(a.Devices) == 0 {
		found.Add("devices", nil, "is empty; add at least one")
	}

	for i, d := range a.Devices {
		if d.Host == "" || d.PCI == "" || d.ID == nil || d.Subsystem == nil || d.Group == nil {
			found.Add(fmt.Sprintf("devices[%d]", i), nil,
				"%s of host %q is not described in full; set host, pci, id, subsystem and group", d.PCI, d.Host)
		}
	}

	return problemsOf("PCI mapping", name, found)
}
