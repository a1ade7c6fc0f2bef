package spec

import (
	"regexp"
	"strings"
)

// hasOneAddress reports a device that has none or both of a PCI address and a USB device.
func (p *planner) hasOneAddress(path string, c DeviceConfig) bool {
	switch {
	case c.PCI == "" && c.USB == nil && !p.problems.Has(path+".pci") && !p.problems.Has(path+".usb"):
		p.problems.Add(path, nil, "is neither a PCI nor a USB device; set pci, such as 00:02.0, or usb, such as {id: 10c4:ea60}")
	case c.PCI != "" && c.USB != nil:
		p.problems.Add(path+".usb", nil, "is set beside pci, and a device is either of PCI or of USB; remove one of the two")
	}

	return (c.PCI == "") != (c.USB == nil)
}

// planPCI sets the address of a PCI device; a wrong one stays empty.
func (p *planner) planPCI(path, pci string, device *Device) {
	address, err := ParsePCI(pci)
	if err != nil && !p.problems.Has(path+".pci") {
		p.problems.Add(path+".pci", pci, "%s", err)
	}

	device.PCI = address
}

// Formats of a USB device's vendor and product, and of its port.
var (
	usbIDFormat = format{
		regexp.MustCompile(`^[0-9A-Fa-f]{4}:[0-9A-Fa-f]{4}$`),
		"is not vendor and product of a USB device; write it as 10c4:ea60, which the host shows: lsusb",
	}
	usbPortFormat = format{
		regexp.MustCompile(`^[0-9]+-[0-9]+(\.[0-9]+)*$`),
		"is not a USB port; write it as 1-4 or 1-4.2 (bus, port, ports of hubs), which the host shows: ls /sys/bus/usb/devices",
	}
)

// planUSB sets how a USB device is found; with a problem in it, not at all.
func (p *planner) planUSB(path string, c DeviceConfig, device *Device) {
	if c.Kind != OtherDevice && !p.problems.Has(path+".kind") {
		p.problems.Add(
			path+".kind", string(c.Kind), "is a kind of PCI devices, and this is a USB device; remove it, or set pci instead of usb",
		)
	}

	device.Kind = USBDevice

	valid := p.checkFormat(path+".usb.id", c.USB.ID, usbIDFormat)
	if c.USB.Port != "" && !p.checkFormat(path+".usb.port", c.USB.Port, usbPortFormat) {
		valid = false
	}

	if valid { // the kernel's and Proxmox' form is in lower case
		device.USB = USB{ID: strings.ToLower(c.USB.ID), Port: c.USB.Port}
	}
}
