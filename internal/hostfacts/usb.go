package hostfacts

import (
	"fmt"
	"strings"

	"talos-proxmox/internal/spec"
)

// checkUSB compares a planned USB device with those of the host: Proxmox starts no machine whose USB mapping does not
// fit them, and takes any device with the id where the mapping has no port.
func (c *checker) checkUSB(device spec.Device) {
	path, found := c.host.DevicePath(device)+".usb", c.facts.USBDevices(device.USB)

	switch {
	case len(found) == 0 && device.USB.Port != "":
		c.problem(path+".port", "%s has no USB device at port %s: %s", c.host.Name, device.USB.Port, c.usbHint())
	case len(found) == 0:
		c.problem(path+".id", "%s has no USB device %s: %s", c.host.Name, device.USB.ID, c.usbHint())
	case device.USB.Port != "" && found[0].ID != device.USB.ID:
		c.problem(path+".id", "%s is not the USB device at port %s of %s, which is %s; set its id, or the port of the device",
			device.USB.ID, device.USB.Port, c.host.Name, found[0].label())
	case len(found) > 1:
		c.problem(path+".port", "is missing, and %s has %d USB devices %s, of which Proxmox would take any: %s; set the port of "+
			"the device", c.host.Name, len(found), device.USB.ID, usbLabels(found))
	}
}

func (c *checker) usbHint() string {
	if len(c.facts.USB) == 0 {
		return "it has none besides hubs; is the device plugged in? `lsusb` there lists the devices"
	}

	return "it has " + usbLabels(c.facts.USB) + "; plug the device in, or set where it is"
}

// label names a device for messages: 10c4:ea60 at 1-4 (Silicon Labs CP2102N).
func (d USBDevice) label() string {
	label := d.ID + " at " + d.Port
	if d.Name != "" {
		label += " (" + d.Name + ")"
	}

	return label
}

func usbLabels(devices []USBDevice) string {
	list := make([]string, 0, len(devices))
	for _, d := range devices {
		list = append(list, d.label())
	}

	return strings.Join(list, ", ")
}

func usbLine(facts *Facts, device spec.Device) string {
	found := facts.USBDevices(device.USB)
	if len(found) == 0 {
		return fmt.Sprintf("device %s: no USB device at %s", device.Name, device.Address())
	}

	return fmt.Sprintf("device %s: USB device %s", device.Name, usbLabels(found))
}
