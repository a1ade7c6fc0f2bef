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

// guestAddresses gives passed-through devices the addresses that the guest sees: the first is behind the first PCIe
// port, on bus 1, with its functions.
func guestAddresses(devices []datacentre.GuestPCI) []datacentre.GuestPCI {
	var slots []string

	seen := slices.Clone(devices)

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

		seen[i].Address = fmt.Sprintf("0000:%02x:00.%s", bus+1, function)
	}

	return seen
}

// chipset are devices of Proxmox' virtual hardware.
var chipset = []datacentre.GuestPCI{
	{
		Address:  "0000:00:00.0",
		Vendor:   "Intel Corporation",
		Device:   "82G33/G31/P35/P31 Express DRAM Controller",
		VendorID: "0x8086",
		DeviceID: "0x29c0",
		Class:    "0x060000",
	},
	{
		Address:  "0000:00:1f.0",
		Vendor:   "Intel Corporation",
		Device:   "82801IB (ICH9) LPC Interface Controller",
		VendorID: "0x8086",
		DeviceID: "0x2918",
		Class:    "0x060100",
	},
}

// pciClasses name the classes and subclasses of devices that are passed through, by their codes.
var pciClasses = map[string][2]string{
	"0x0100": {"Mass storage controller", "SCSI storage controller"},
	"0x0106": {"Mass storage controller", "SATA controller"},
	"0x0108": {"Mass storage controller", "Non-Volatile memory controller"},
	"0x0200": {"Network controller", "Ethernet controller"},
	"0x0300": {"Display controller", "VGA compatible controller"}, "0x0302": {"Display controller", "3D controller"},
	"0x0403": {"Multimedia controller", "Audio device"},
	"0x0600": {"Bridge", "Host bridge"},
	"0x0601": {"Bridge", "ISA bridge"},
	"0x0c03": {"Serial bus controller", "USB controller"},
	"0x0c80": {"Serial bus controller", "Serial bus controller"},
}

// pciDevice is a passed-through device; a GPU has the NVIDIA driver once it is loaded.
func (k *Kernel) pciDevice(p datacentre.GuestPCI) resource.Resource {
	code := (hexID(p.Class) + "0000")[:len("0x0000")]
	names := pciClasses[code]

	return resources.Filled(hardware.NewPCIDeviceInfo(p.Address), func(r *hardware.PCIDevice) {
		s := r.TypedSpec()
		s.Class, s.Subclass, s.ClassID, s.SubclassID = names[0], names[1], code[:4], "0x"+code[4:]
		s.Vendor, s.Product, s.VendorID, s.ProductID = p.Vendor, p.Device, hexID(p.VendorID), hexID(p.DeviceID)

		if slices.ContainsFunc(k.DrivenGPUs(), func(gpu datacentre.GuestPCI) bool { return gpu.Address == p.Address }) {
			s.Driver = "nvidia"
		}
	})
}

func hexID(id string) string { return "0x" + strings.TrimPrefix(strings.ToLower(id), "0x") }
