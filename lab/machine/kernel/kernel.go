// Package kernel simulates a machine's kernel: PCI and USB devices, kernel modules, and NVIDIA GPUs with the driver of
// an extension.
package kernel

import (
	"slices"

	"talos-proxmox/lab/datacentre"
)

// Kernel is the kernel of one boot. The machine's lock guards it.
type Kernel struct {
	devices    []datacentre.PCIDevice
	usb        []datacentre.USBDevice
	extensions []Extension
	modules    []string // loaded, in order
	logf       func(format string, args ...any)
}

// Extension is a system extension of the machine's image.
type Extension struct {
	// Name is the short name, such as "nvidia-container-toolkit-lts", Version as Talos lists it, such as
	// "570.195.03-v1.12.6".
	Name, Version string
}

// New boots a kernel with passed-through devices; logf writes to the machine's console.
func New(
	devices []datacentre.PCIDevice, usb []datacentre.USBDevice, extensions []Extension,
	say func(format string, args ...any),
) *Kernel {
	k := &Kernel{
		devices: guestAddresses(devices), usb: usb, extensions: extensions, modules: slices.Clone(hardwareModules), logf: say,
	}
	k.probeGPUs()
	k.probeUSB()

	return k
}
