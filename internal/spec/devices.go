package spec

import "strings"

// DeviceKind is what a device is: the driver that it needs in its machine, and whether the host binds it to vfio-pci.
type DeviceKind string

// The kinds of devices.
const (
	NVIDIAGPU   DeviceKind = "" // of hosts[].gpus; its generation determines its driver
	IntelGPU    DeviceKind = "intel-gpu"
	AMDGPU      DeviceKind = "amd-gpu"
	OtherDevice DeviceKind = "other"
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

// Device is a PCI device of a host for machines.
type Device struct {
	Name string // of its PCI mapping; devices of one kind share it
	Host string
	// PCI is its address as Proxmox writes it: 0000:01:00 for all functions of the device, 0000:01:00.0 for one.
	PCI        string
	Generation string     // of NVIDIA's GPUs: maxwell to blackwell
	Raw        bool       // passed through by address, without a mapping
	Kind       DeviceKind `json:",omitempty"`
}
