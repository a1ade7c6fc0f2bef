package components

import (
	"fmt"

	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/hardware/mapping"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/internal/ownership"
	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/tokens"
)

// USBMappingType is the type token of [USBMapping].
const USBMappingType = "talos-proxmox:host:USBMapping"

// MappedUSBDevice is a USB device of a host.
type MappedUSBDevice struct {
	// The name of the Proxmox host: pve1.
	Host string `pulumi:"host"`
	// Vendor and product in hexadecimal, in lower case: 10c4:ea60.
	ID string `pulumi:"id"`
	// The bus and port that it is plugged into: 1-4.2. Default: any device of the host with the id.
	Port string `pulumi:"port,optional"`
}

// USBMappingArgs describe a mapping.
type USBMappingArgs struct {
	// The devices, all of one kind, one of each host. At least one.
	Devices []MappedUSBDevice `pulumi:"devices"`
}

// USBMapping is a USB mapping in Proxmox: a name for a USB device of each host. Its name is the resource's.
type USBMapping struct {
	pulumi.ResourceState

	// The mapping's name, for machines, which wait for the mapping when they use it.
	Name pulumi.StringOutput `pulumi:"name"`
}

// NewUSBMapping creates the mapping through the API, and updates it in place when devices change. Its comment names the
// stack that created it.
func NewUSBMapping(
	ctx *pulumi.Context, name string, args USBMappingArgs, opts ...pulumi.ResourceOption,
) (*USBMapping, error) {
	if err := args.validate(name); err != nil {
		return nil, err
	}

	c := &USBMapping{}

	return register(ctx, USBMappingType, "USB mapping", name, c, opts, step{"", func() error {
		return c.registerMapping(ctx, name, args)
	}})
}

func (c *USBMapping) registerMapping(ctx *pulumi.Context, name string, args USBMappingArgs) error {
	maps := make(mapping.UsbMapTypeArray, 0, len(args.Devices))
	for _, device := range args.Devices {
		maps = append(maps, mapping.UsbMapTypeArgs{
			Id: pulumi.String(device.ID), Node: pulumi.String(device.Host), Path: optionalString(device.Port),
		})
	}

	registered, err := mapping.NewUsb(ctx, name+tokens.OfMapping, &mapping.UsbArgs{
		Name:    pulumi.String(name),
		Comment: pulumi.String(ownership.Mapping(stackOwner(ctx))),
		Maps:    maps,
	}, pulumi.Parent(c))
	if err != nil {
		return err
	}

	c.Name = valueAfter(ctx, name, registered)

	return nil
}

func (a USBMappingArgs) validate(name string) error {
	found := &problem.List{}
	if len(a.Devices) == 0 {
		found.Add("devices", nil, "is empty; add at least one")
	}

	hosts := map[string]bool{}

	for i, d := range a.Devices {
		at := fmt.Sprintf("devices[%d]", i)

		switch {
		case d.Host == "" || d.ID == "":
			found.Add(at, nil, "is not described in full; set host, and id, such as 10c4:ea60")
		case hosts[d.Host]:
			found.Add(at+".host", d.Host, "has another device of this mapping, and Proxmox allows one of a host; give this one a "+
				"mapping of its own")
		}

		hosts[d.Host] = true
	}

	return problemsOf("USB mapping", name, found)
}
