package hostos

import (
	"cmp"
	"strconv"
	"strings"

	"talos-proxmox/lab/datacentre"
)

// deviceFolder is a device's folder below /sys/devices: in that of the bridge above it.
func deviceFolder(h datacentre.Host, p datacentre.PCIDevice) string {
	for _, bridge := range h.PCI {
		if p.Bus != "" && bridge.Address == p.Bus {
			return deviceFolder(h, bridge) + "/" + p.Address
		}
	}

	return "sys/devices/pci0000:00/" + p.Address
}

func (t tree) addPCI(h datacentre.Host) {
	for _, p := range h.PCI {
		folder := deviceFolder(h, p)
		t.link("sys/bus/pci/devices/"+p.Address, folder)
		t.addAttributes(p, folder)

		if driver := h.Boot.Drivers[p.Address]; driver != "" {
			t.link(folder+"/driver", "sys/bus/pci/drivers/"+driver)
			t.link("sys/bus/pci/drivers/"+driver+"/"+p.Address, folder)
		}

		if p.IOMMUGroup >= 0 {
			group := "sys/kernel/iommu_groups/" + strconv.Itoa(p.IOMMUGroup)
			t.link(folder+"/iommu_group", group)
			t.link(group+"/devices/"+p.Address, folder)
		}
	}

	if h.Boot.IOMMU {
		unit := map[bool]string{false: "ivhd0", true: "dmar0"}[h.Intel()]
		t.link("sys/class/iommu/"+unit, "sys/devices/virtual/iommu/"+unit)
		t["sys/devices/virtual/iommu/"+unit+"/uevent"] = ""
	}
}

// addUSB adds the USB devices, whose folders have the names of their ports.
func (t tree) addUSB(h datacentre.Host) {
	for _, u := range h.USB {
		folder := "sys/devices/pci0000:00/usb/" + u.Port
		t.link("sys/bus/usb/devices/"+u.Port, folder)

		vendor, product, _ := strings.Cut(u.ID, ":")
		for name, value := range map[string]string{
			"idVendor": vendor, "idProduct": product, "bDeviceClass": "00", "manufacturer": u.Manufacturer, "product": u.Product,
		} {
			if value != "" {
				t[folder+"/"+name] = value + "\n"
			}
		}
	}
}

func (t tree) addAttributes(p datacentre.PCIDevice, folder string) {
	for name, value := range map[string]string{
		"vendor":           p.VendorID,
		"device":           p.DeviceID,
		"class":            p.Class,
		"subsystem_vendor": cmp.Or(p.SubsystemVendor, "0x0000"),
		"subsystem_device": cmp.Or(p.SubsystemDevice, "0x0000"),
	} {
		t[folder+"/"+name] = value + "\n"
	}
}
