package vmdiff

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// compareDevices compares devices of the host. Proxmox plugs a USB device into a running machine, but the provider
// reboots it for that as well.
func (c *comparison) compareDevices(old, wanted Machine) {
	for _, usb := range []bool{false, true} {
		was, is := devicesOf(old, usb), devicesOf(wanted, usb)
		if slices.Equal(was, is) {
			continue
		}

		property, key, noun := "hostpcis", "devices", "devices"

		switch {
		case usb:
			property, noun = "usbs", "USB devices"
		case wanted.HasGPUs:
			key, noun = "gpu", "GPUs"
		}

		c.add(property, key, Restart, fmt.Sprintf("%s %s → %s", noun, deviceNames(was), deviceNames(is)))
	}
}

// devicesOf returns a machine's USB devices, or its PCI devices.
func devicesOf(m Machine, usb bool) []Device {
	return slices.DeleteFunc(slices.Clone(m.Devices), func(d Device) bool { return d.USB != usb })
}

func deviceNames(devices []Device) string {
	list := make([]string, 0, len(devices))
	for _, d := range devices {
		list = append(list, cmp.Or(d.Mapping, d.PCI))
	}

	return cmp.Or(strings.Join(list, ", "), "none")
}
