// Package kernel is what a machine's kernel makes of its devices: PCI, kernel modules, and NVIDIA's GPUs with the
// driver that an extension of the image brings.
package kernel

import (
	"slices"

	"talos-proxmox/lab/datacentre"
)

// Kernel is the kernel of one boot. The machine's lock guards it.
type Kernel struct {
	devices    []datacentre.PCIDevice
	extensions []Extension
	modules    []string // loaded, in order
	logf       func(format string, args ...any)
}

// Extension is a system extension of the machine's image.
type Extension struct {
	// Name is its short one, such as "nvidia-container-toolkit-lts", Version as Talos lists it, such as
	// "570.195.03-v1.12.6".
	Name, Version string
}

// New boots a kernel on the passed-through devices; say writes to the machine's console.
func New(devices []datacentre.PCIDevice, extensions []Extension, say func(format string, args ...any)) *Kernel {
	return &Kernel{
		devices: guestAddresses(devices), extensions: extensions, modules: slices.Clone(hardwareModules), logf: say,
	}
}
