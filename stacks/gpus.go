package stacks

import (
	"fmt"
	"maps"
	"slices"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components"
	"talos-proxmox/internal/hostfacts"
	"talos-proxmox/internal/spec"
)

// registerMappings registers a mapping for each name of devices that machines use, with the devices of the hosts they
// are on.
func (d *deployment) registerMappings(ctx *pulumi.Context) error {
	used := d.usedDevices()
	for _, name := range slices.Sorted(maps.Keys(used)) {
		args, usb := components.PCIMappingArgs{}, components.USBMappingArgs{}
		ready := pulumi.StringArray{}

		for _, h := range d.plan.Hosts {
			if !used[name][h.Name] {
				continue
			}

			for _, planned := range h.AllDevices() {
				if planned.Name != name {
					continue
				}

				if planned.Kind == spec.USBDevice {
					usb.Devices = append(usb.Devices, components.MappedUSBDevice{
						Host: planned.Host, ID: planned.USB.ID, Port: planned.USB.Port,
					})

					continue
				}

				device, err := d.mappedDevice(planned)
				if err != nil {
					return err
				}

				args.Devices = append(args.Devices, device)
			}

			if state, known := d.hosts[h.Name]; known && state.prep != nil {
				ready = append(ready, state.prep.Ready)
			}
		}

		if len(usb.Devices) > 0 {
			mapping, err := components.NewUSBMapping(ctx, name, usb)
			if err != nil {
				return err
			}

			d.mappings[name] = mapping.Name

			continue
		}

		args.HostsReady = ready

		mapping, err := components.NewPCIMapping(ctx, name, args)
		if err != nil {
			return err
		}

		d.mappings[name] = mapping.Name
	}

	return nil
}

// usedDevices returns the mapped names that machines use, with their hosts.
func (d *deployment) usedDevices() map[string]map[string]bool {
	used := map[string]map[string]bool{}

	for _, m := range d.plan.Members() {
		for _, device := range m.AllDevices() {
			if device.Raw {
				continue
			}

			if used[device.Name] == nil {
				used[device.Name] = map[string]bool{}
			}

			used[device.Name][m.Host] = true
		}
	}

	return used
}

// mappedDevice describes a device by its host's facts: the queried ones if no reboot can change them, so that a run
// without changes has no unknown values; otherwise those after the host's preparation.
func (d *deployment) mappedDevice(planned spec.Device) (components.MappedDevice, error) {
	h := d.hosts[planned.Host]

	device := components.MappedDevice{Host: planned.Host, PCI: planned.PCI}
	if facts := h.answer.Facts; facts != nil && (h.prep == nil || !facts.RebootRequired()) {
		identity, err := facts.Identity(planned.PCI)
		if err == nil {
			device.ID, device.Subsystem, device.Group = pulumi.String(identity.ID), pulumi.String(
				identity.Subsystem,
			), pulumi.Int(identity.Group)

			return device, nil
		}

		if h.prep == nil {
			return device, fmt.Errorf("%s: %w", h.DevicePath(planned), err)
		}
	}

	document := unknownString()
	if h.prep != nil {
		document = h.prep.Facts
	}

	identity := document.ApplyT(func(document string) (hostfacts.Identity, error) {
		facts, err := hostfacts.Parse([]byte(document))
		if err != nil {
			return hostfacts.Identity{}, err
		}

		return facts.Identity(planned.PCI)
	})
	device.ID = identity.ApplyT(func(i any) string { return i.(hostfacts.Identity).ID }).(pulumi.StringOutput)
	device.Subsystem = identity.ApplyT(func(i any) string {
		return i.(hostfacts.Identity).Subsystem
	}).(pulumi.StringOutput)
	device.Group = identity.ApplyT(func(i any) int { return i.(hostfacts.Identity).Group }).(pulumi.IntOutput)

	return device, nil
}

// exportGPUs exports the devices of PCI mappings, and the values of the GPU Operator for clusters that use it.
func (d *deployment) exportGPUs(ctx *pulumi.Context) error {
	mappings := pulumi.Map{}
	for name := range d.mappings {
		devices := pulumi.StringArray{}

		for _, h := range d.plan.Hosts {
			for _, device := range spec.PCIDevices(h.AllDevices()) {
				if device.Name == name && d.usedDevices()[name][h.Name] {
					devices = append(devices, pulumi.String(h.Name+" "+device.Address()))
				}
			}
		}

		if len(devices) > 0 {
			mappings[name] = devices
		}
	}

	ctx.Export(PCIMappings, mappings)

	values := pulumi.StringMap{}

	for _, cluster := range d.plan.Clusters {
		text, err := d.clusterArgs(cluster).GPUOperatorValues()
		if err != nil {
			return err
		}

		if text != "" {
			values[cluster.Name] = pulumi.String(text)
		}
	}

	ctx.Export(GPUOperatorValues, values)

	return nil
}
