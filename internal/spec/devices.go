package spec

import (
	"cmp"
	"strings"
)

// DeviceKind is what a device is: the driver that it needs in its machine, and whether the host binds it to vfio-pci.
type DeviceKind string

// The kinds of devices.
const (
	NVIDIAGPU   DeviceKind = "" // of hosts[].gpus; its generation determines its driver
	IntelGPU    DeviceKind = "intel-gpu"
	AMDGPU      DeviceKind = "amd-gpu"
	OtherDevice DeviceKind = "other"
	USBDevice   DeviceKind = "usb" // of hosts[].devices with usb
)

// list returns the key of a host that lists devices of the kind.
func (k DeviceKind) list() string {
	if k == NVIDIAGPU {
		return "gpus"
	}

	return "devices"
}

// noun names a device of the kind in messages.
func (k DeviceKind) noun() string {
	if k == NVIDIAGPU {
		return "GPU"
	}

	return "device"
}

// Bound reports whether the host's preparation binds the device to vfio-pci: all GPUs but virtual functions, whose ids
// are those of the GPU that the host has to keep. Proxmox takes other devices from their driver when a machine starts.
func (d Device) Bound() bool {
	_, function, single := strings.Cut(d.PCI, ".")

	return d.Kind == NVIDIAGPU || d.Kind != OtherDevice && (!single || function == "0")
}

// Device is a PCI or USB device of a host for machines.
type Device struct {
	Name string // of its mapping; devices of one kind share it
	Host string
	// PCI is its address as Proxmox writes it: 0000:01:00 for all functions of the device, 0000:01:00.0 for one. Empty =
	// a USB device.
	PCI        string
	USB        USB        `json:",omitzero"`
	Generation string     // of NVIDIA's GPUs: maxwell to blackwell
	Raw        bool       // passed through by address, without a mapping
	Kind       DeviceKind `json:",omitempty"`
}

// USB is how a host finds a USB device.
type USB struct {
	ID   string // vendor and product in hexadecimal: 10c4:ea60
	Port string `json:",omitempty"` // where it is plugged in: 1-4.2; empty = the only device with the id
}

// Address returns where the device is on its host: its PCI address, or the port of a USB device, or else its id.
func (d Device) Address() string { return cmp.Or(d.PCI, d.USB.Port, d.USB.ID) }

// MappingPath returns the path of the device's mapping in Proxmox' permissions: /mapping/usb/zigbee. The API has it
// below /cluster.
func (d Device) MappingPath() string {
	if d.Kind == USBDevice {
		return "/mapping/usb/" + d.Name
	}

	return "/mapping/pci/" + d.Name
}

// shares reports whether two devices of one host are, or may be, the same: an address of a PCI device includes its
// functions, and a USB device without a port is any with its id.
func (d Device) shares(other Device) bool {
	switch {
	case (d.Kind == USBDevice) != (other.Kind == USBDevice):
		return false
	case d.Kind != USBDevice:
		return sameDevice(d.PCI, other.PCI)
	case d.USB.Port == "" || other.USB.Port == "":
		return d.USB.ID == other.USB.ID
	default:
		return d.USB.Port == other.USB.Port
	}
}

// PCIDevices returns the PCI devices of a list.
func PCIDevices(list []Device) []Device { return ofUSB(list, false) }

// USBDevices returns the USB devices of a list.
func USBDevices(list []Device) []Device { return ofUSB(list, true) }

func ofUSB(list []Device, usb bool) (found []Device) {
	for _, d := range list {
		if (d.Kind == USBDevice) == usb {
			found = append(found, d)
		}
	}

	return found
}
