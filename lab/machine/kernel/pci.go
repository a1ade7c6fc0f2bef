package kernel

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"

	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/machine/resources"
)

// guestAddresses sets the guest's addresses of passed-through devices: the first is behind the first PCIe port, on bus
// 1, with its functions.
func guestAddresses(devices []datacentre.PCIDevice) []datacentre.PCIDevice {
	var slots []string

	guest := slices.Clone(devices)

	for i, d := range devices {
		slot, function, found := strings.Cut(d.Address, ".")
		if !found {
			function = "0"
		}

		bus := slices.Index(slots, slot)
		if bus < 0 {
			slots = append(slots, slot)
			bus = len(slots) - 1
		}

		guest[i].Address = fmt.Sprintf("0000:%02x:00.%s", bus+1, function)
	}

	return guest
}

// pciDevice returns a passed-through device as a resource; a supported GPU has the loaded NVIDIA driver.
func (k *Kernel) pciDevice(p datacentre.PCIDevice) resource.Resource {
	code := (hexID(p.Class) + "0000")[:len("0x0000")]

	return resources.WithSpec(hardware.NewPCIDeviceInfo(p.Address), func(r *hardware.PCIDevice) {
		s := r.TypedSpec()
		s.ClassID, s.SubclassID = code[:4], "0x"+code[4:]
		s.Vendor, s.Product, s.VendorID, s.ProductID = p.Vendor, p.Device, hexID(p.VendorID), hexID(p.DeviceID)

		if slices.ContainsFunc(k.DrivenGPUs(), func(gpu datacentre.PCIDevice) bool { return gpu.Address == p.Address }) {
			s.Driver = "nvidia"
		} else {
			s.Driver = k.driverOf(p)
		}
	})
}

// gpuDrivers are the drivers of other vendors' GPUs, which extensions of the same names contain.
var gpuDrivers = map[string]string{"0x8086": "i915", "0x1002": "amdgpu"}

// driverOf returns the driver of a GPU of Intel or AMD; empty = its extension is missing, or it is another device.
func (k *Kernel) driverOf(p datacentre.PCIDevice) string {
	driver := gpuDrivers[hexID(p.VendorID)]

	_, ok := k.extension(driver)
	if driver == "" || !ok || !strings.HasPrefix(hexID(p.Class), "0x03") {
		return ""
	}

	return driver
}

// probeGPUs loads the drivers of GPUs of Intel and AMD, as udev does at boot: they make the devices in /dev/dri.
func (k *Kernel) probeGPUs() {
	for _, p := range k.devices {
		driver := k.driverOf(p)
		if driver == "" {
			continue
		}

		k.loadDriver(driver)
		k.logf("[drm] Initialized %s for %s on minor 0", driver, p.Address)
	}
}

func hexID(id string) string { return "0x" + strings.TrimPrefix(strings.ToLower(id), "0x") }
