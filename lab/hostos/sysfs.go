package hostos

import (
	"fmt"
	"strconv"
	"strings"

	"talos-proxmox/lab/datacentre"
)

// home is a device's folder below /sys/devices: within that of the bridge above it.
func home(h datacentre.Host, p datacentre.PCIDevice) string {
	for _, bridge := range h.PCI {
		if p.Bus != "" && bridge.Address == p.Bus {
			return home(h, bridge) + "/" + p.Address
		}
	}

	return "sys/devices/pci0000:00/" + p.Address
}

func (t tree) addPCI(h datacentre.Host) {
	for i, p := range h.PCI {
		folder := home(h, p)
		t.link("sys/bus/pci/devices/"+p.Address, folder)
		t.addAttributes(p, folder, 16+i)

		if driver := h.Boot.Drivers[p.Address]; driver != "" {
			t.link(folder+"/driver", "sys/bus/pci/drivers/"+driver)
			t.link("sys/bus/pci/drivers/"+driver+"/"+p.Address, folder)
		}

		if p.IOMMUGroup >= 0 {
			group := "sys/kernel/iommu_groups/" + strconv.Itoa(p.IOMMUGroup)
			t.link(folder+"/iommu_group", group)
			t.link(group+"/devices/"+p.Address, folder)
			t[group+"/type"] = groupType(h) + "\n"
		}
	}

	for _, name := range h.Boot.Modules {
		if name == "vfio_pci" {
			t["sys/bus/pci/drivers/vfio-pci/new_id"] = ""
			t["sys/bus/pci/drivers/vfio-pci/bind"] = ""
			t["sys/bus/pci/drivers/vfio-pci/unbind"] = ""
		}
	}

	if h.Boot.IOMMU {
		unit := map[bool]string{false: "ivhd0", true: "dmar0"}[h.Intel()]
		t.link("sys/class/iommu/"+unit, "sys/devices/virtual/iommu/"+unit)
		t["sys/devices/virtual/iommu/"+unit+"/uevent"] = ""
	}
}

// groupType is how the kernel translates addresses of the host's own devices.
func groupType(h datacentre.Host) string {
	if strings.Contains(" "+h.Boot.CommandLine+" ", " iommu=pt ") {
		return "identity"
	}

	return "DMA-FQ"
}

func (t tree) addAttributes(p datacentre.PCIDevice, folder string, irq int) {
	for name, value := range map[string]string{
		"vendor":           p.VendorID,
		"device":           p.DeviceID,
		"class":            p.Class,
		"subsystem_vendor": orZero(p.SubsystemVendor),
		"subsystem_device": orZero(p.SubsystemDevice),
		"revision":         "0xa1", "irq": strconv.Itoa(irq), "enable": "1", "numa_node": "-1", "driver_override": "(null)",
		"modalias": fmt.Sprintf("pci:v%sd%ssv%ssd%sbc%ssc%si%s", long(p.VendorID), long(p.DeviceID), long(p.SubsystemVendor),
			long(p.SubsystemDevice),
			p.Class[2:4], p.Class[4:6], p.Class[6:8]),
	} {
		t[folder+"/"+name] = value + "\n"
	}

	if strings.HasPrefix(p.Class, "0x03") {
		t[folder+"/boot_vga"] = map[bool]string{false: "0\n", true: "1\n"}[p.BootVGA]
	}

	if strings.HasPrefix(p.Class, "0x0604") {
		t[folder+"/pci_bus/uevent"] = ""
	}
}

func orZero(id string) string {
	if id == "" {
		return "0x0000"
	}

	return id
}

func long(id string) string {
	return strings.ToUpper(fmt.Sprintf("%08s", strings.TrimPrefix(id, "0x")))
}
