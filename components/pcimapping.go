package components

import (
	"errors"
	"fmt"

	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/hardware/mapping"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"proxmox-talos/internal/marker"
)

// PCIMappingType is the type token of [PCIMapping].
const PCIMappingType = "talos-proxmox:host:PCIMapping"

// MappedDevice is a device of a host, with everything that Proxmox recognises it by: an entry without group or subsystem counts as incomplete there.
type MappedDevice struct {
	Host string
	PCI  string // as Proxmox writes it: 0000:01:00
	// ID and Subsystem are vendor and device in hexadecimal, 10de:27b0; Group is the device's IOMMU group.
	ID, Subsystem pulumi.StringInput
	Group         pulumi.IntInput
}

// PCIMappingArgs describe a mapping.
type PCIMappingArgs struct {
	Devices []MappedDevice
	// After is what the devices are ready after: the preparation of their hosts.
	After []pulumi.Resource
}

// PCIMapping is a name for devices of one kind, by which machines ask for one: Proxmox gives a starting machine a free one of its host. Its name is the resource's.
type PCIMapping struct {
	pulumi.ResourceState

	Name pulumi.StringOutput `pulumi:"name"`

	mapping *mapping.Pci
}

// NewPCIMapping makes the mapping through the API, and changes it in place when devices come or go. Its comment says
// which stack made it.
func NewPCIMapping(ctx *pulumi.Context, name string, args PCIMappingArgs, opts ...pulumi.ResourceOption) (*PCIMapping, error) {
	if err := args.validate(); err != nil {
		return nil, fmt.Errorf("PCI mapping %q: %w", name, err)
	}

	c := &PCIMapping{}
	if err := ctx.RegisterComponentResource(PCIMappingType, name, c, opts...); err != nil {
		return nil, fmt.Errorf("unable to register PCI mapping %q: %w", name, err)
	}

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
	var err error
	c.mapping, err = mapping.NewPci(ctx, name+"-mapping", &mapping.PciArgs{
		Name:            pulumi.String(name),
		Comment:         pulumi.String(marker.Mapping(marker.Of(ctx.Organization(), ctx.Project(), ctx.Stack()))),
		MediatedDevices: pulumi.Bool(false),
		Maps:            maps,
	}, pulumi.Parent(c), pulumi.DependsOn(args.After))
	if err != nil {
		return nil, fmt.Errorf("unable to register PCI mapping %q: %w", name, err)
	}

	c.Name = pulumi.String(name).ToStringOutput()
	if err := ctx.RegisterResourceOutputs(c, pulumi.Map{"name": c.Name}); err != nil {
		return nil, fmt.Errorf("unable to register the outputs of PCI mapping %q: %w", name, err)
	}

	return c, nil
}

// Made is the mapping: what a machine that uses it waits for.
func (c *PCIMapping) Made() pulumi.Resource { return c.mapping }

func (a PCIMappingArgs) validate() error {
	if len(a.Devices) == 0 {
		return errors.New("no devices: state at least one")
	}
	var problems []error
	for _, d := range a.Devices {
		if d.Host == "" || d.PCI == "" || d.ID == nil || d.Subsystem == nil || d.Group == nil {
			problems = append(problems, fmt.Errorf("its device %s of host %q is not described in full: state ID, Subsystem and Group", d.PCI, d.Host))
		}
	}

	return errors.Join(problems...)
}
