package server

import (
	"net/netip"
	"slices"

	"talos-proxmox/lab/datacentre"
)

// hostOptions are the lab's hosts: pve1 has a GPU, an AMD board and ZFS, pve2 an Intel board and neither, further ones
// are like pve1 on ext4.
func hostOptions(n network, names, datastores []string) []datacentre.HostOptions {
	list := make([]datacentre.HostOptions, 0, len(names))

	for i, name := range names {
		o := datacentre.HostOptions{
			Name:      name,
			Address:   nth(n.hosts, byte(firstHost+i)),
			Gateway:   nth(n.hosts, 1),
			DNS:       []netip.Addr{nth(n.hosts, 1)},
			Cores:     16,
			CPUModel:  "AMD EPYC 4564P 16-Core Processor",
			MemoryMiB: 96 * 1024,
			PCI:       append(amdBoard(), gpu()...), USB: sticks(), Storages: datacentre.DefaultStorages()[:2],
		}

		switch i {
		case 0:
			o.Pools = []datacentre.ZPool{{
				Name: "rpool", SizeBytes: 928 * datacentre.GiB, Mirror: true, Root: true,
				Disks: []string{
					"nvme-SAMSUNG_MZVL21T0HCLR-00B00_S676NX0R500001-part3", "nvme-SAMSUNG_MZVL21T0HCLR-00B00_S676NX0R500002-part3",
				},
			}}
			o.Storages = datacentre.DefaultStorages()
		case 1:
			o.CPUModel, o.MemoryMiB, o.PCI = "Intel(R) Xeon(R) E-2388G CPU @ 3.20GHz", 64*1024, intelBoard()
		}

		for _, datastore := range datastores {
			if !slices.ContainsFunc(o.Storages, func(s datacentre.StorageOptions) bool { return s.Name == datastore }) {
				o.Storages = append(o.Storages, datacentre.StorageOptions{
					Name: datastore, Type: "lvmthin", Content: []string{"images", "rootdir"}, SizeBytes: 900 * datacentre.GiB,
				})
			}
		}

		list = append(list, o)
	}

	return list
}

// sticks are a Zigbee stick, and two equal ones for Z-Wave behind a hub.
func sticks() []datacentre.USBDevice {
	zwave := datacentre.USBDevice{ID: "0658:0200"} // it has no texts

	return []datacentre.USBDevice{
		{Port: "1-4", ID: "10c4:ea60", Manufacturer: "Silicon Labs", Product: "CP2102N USB to UART Bridge Controller"},
		{Port: "1-7.1", ID: zwave.ID},
		{Port: "1-7.2", ID: zwave.ID},
	}
}

// device is a PCI device without a subsystem.
func device(address, bus, class, ids, driver string, group int, vendor, name string) datacentre.PCIDevice {
	return datacentre.PCIDevice{
		Address:    "0000:" + address,
		Bus:        onBus(bus),
		Class:      "0x" + class,
		VendorID:   "0x" + ids[:4],
		DeviceID:   "0x" + ids[5:],
		Driver:     driver,
		IOMMUGroup: group,
		Vendor:     vendor, Device: name,
	}
}

func onBus(bridge string) string {
	if bridge == "" {
		return ""
	}

	return "0000:" + bridge
}

func subsystem(p datacentre.PCIDevice, ids string) datacentre.PCIDevice {
	p.SubsystemVendor, p.SubsystemDevice = "0x"+ids[:4], "0x"+ids[5:]

	return p
}

const (
	amd      = "Advanced Micro Devices, Inc. [AMD]"
	ati      = "Advanced Micro Devices, Inc. [AMD/ATI]"
	intel    = "Intel Corporation"
	nvidia   = "NVIDIA Corporation"
	samsung  = "Samsung Electronics Co Ltd"
	aspeed   = "ASPEED Technology, Inc."
	asrock   = "1849:14d8"
	superm   = "15d9:1c50"
	pcieport = "pcieport"
)

// gpu is an NVIDIA RTX 4000 SFF Ada with its audio function, in its own IOMMU group.
func gpu() []datacentre.PCIDevice {
	return []datacentre.PCIDevice{
		subsystem(
			device("01:00.0", "00:01.1", "030000", "10de:27b0", "nouveau", 13, nvidia, "AD104GL [RTX 4000 SFF Ada Generation]"),
			"10de:16fa",
		),
		subsystem(
			device(
				"01:00.1", "00:01.1", "040300", "10de:22bc", "snd_hda_intel", 13, nvidia, "AD104 High Definition Audio Controller",
			),
			"10de:16fa",
		),
	}
}

func amdBoard() []datacentre.PCIDevice {
	disk := subsystem(
		device("02:00.0", "00:02.1", "010802", "144d:a80a", "nvme", 14, samsung, "NVMe SSD Controller PM9A1/PM9A3/980PRO"),
		"144d:a801",
	)
	disk.BootDisk = true
	console := subsystem(
		device("05:00.0", "04:00.0", "030000", "1a03:2000", "ast", 16, aspeed, "ASPEED Graphics Family"), "1849:2000",
	)

	return []datacentre.PCIDevice{
		subsystem(device("00:00.0", "", "060000", "1022:14d8", "", 0, amd, "Raphael/Granite Ridge Root Complex"), asrock),
		subsystem(device("00:00.2", "", "080600", "1022:14d9", "", -1, amd, "Raphael/Granite Ridge IOMMU"), asrock),
		device("00:01.0", "", "060000", "1022:14da", "", 1, amd, "Raphael/Granite Ridge Dummy Host Bridge"),
		subsystem(
			device("00:01.1", "", "060400", "1022:14db", pcieport, 2, amd, "Raphael/Granite Ridge GPP Bridge"), "1022:1453",
		),
		device("00:02.0", "", "060000", "1022:14da", "", 3, amd, "Raphael/Granite Ridge Dummy Host Bridge"),
		subsystem(
			device("00:02.1", "", "060400", "1022:14db", pcieport, 4, amd, "Raphael/Granite Ridge GPP Bridge"), "1022:1453",
		),
		subsystem(
			device("00:02.2", "", "060400", "1022:14db", pcieport, 5, amd, "Raphael/Granite Ridge GPP Bridge"), "1022:1453",
		),
		device("00:08.0", "", "060000", "1022:14da", "", 6, amd, "Raphael/Granite Ridge Dummy Host Bridge"),
		subsystem(
			device(
				"00:08.1", "", "060400", "1022:14dd", pcieport, 7, amd, "Raphael/Granite Ridge Internal GPP Bridge to Bus [C:A]",
			),
			"1022:14dd",
		),
		subsystem(device("00:14.0", "", "0c0500", "1022:790b", "piix4_smbus", 8, amd, "FCH SMBus Controller"), "1849:ffff"),
		subsystem(device("00:14.3", "", "060100", "1022:790e", "", 8, amd, "FCH LPC Bridge"), "1849:ffff"),
		disk,
		subsystem(
			device("03:00.0", "00:02.2", "020000", "8086:1533", "igb", 15, intel, "I210 Gigabit Network Connection"),
			"1849:1533",
		),
		subsystem(
			device("04:00.0", "00:02.2", "060400", "1a03:1150", "", 16, aspeed, "AST1150 PCI-to-PCI Bridge"), "1849:1150",
		),
		console,
		subsystem(device("06:00.0", "00:08.1", "030000", "1002:164e", "amdgpu", 18, ati, "Raphael"), "1849:364e"),
		subsystem(
			device("06:00.3", "00:08.1", "0c0330", "1022:15b6", "xhci_hcd", 17, amd, "Raphael/Granite Ridge USB 3.1 xHCI"),
			"1849:ffff",
		),
	}
}

func intelBoard() []datacentre.PCIDevice {
	disk := subsystem(
		device("01:00.0", "00:06.0", "010802", "144d:a80a", "nvme", 8, samsung, "NVMe SSD Controller PM9A1/PM9A3/980PRO"),
		"144d:a801",
	)
	disk.BootDisk = true
	console := subsystem(
		device("04:00.0", "03:00.0", "030000", "1a03:2000", "ast", 10, aspeed, "ASPEED Graphics Family"), superm,
	)

	return []datacentre.PCIDevice{
		subsystem(device("00:00.0", "", "060000", "8086:4c53", "", 0, intel, "Rocket Lake Host Bridge"), superm),
		subsystem(device("00:02.0", "", "030000", "8086:4c90", "i915", 11, intel, "RocketLake-S GT1 [UHD Graphics P750]"), superm),
		device("00:06.0", "", "060400", "8086:4c09", pcieport, 1, intel, "Rocket Lake PCIe Root Port"),
		subsystem(
			device(
				"00:14.0", "", "0c0330", "8086:43ed", "xhci_hcd", 2, intel, "Tiger Lake-H USB 3.2 Gen 2x1 xHCI Host Controller",
			),
			superm,
		),
		subsystem(device("00:17.0", "", "010601", "8086:43d2", "ahci", 3, intel, "Tiger Lake SATA AHCI Controller"), superm),
		subsystem(
			device("00:1c.0", "", "060400", "8086:43b8", pcieport, 4, intel, "Tiger Lake-H PCI Express Root Port #1"), superm,
		),
		subsystem(device("00:1f.0", "", "060100", "8086:4385", "", 5, intel, "Tiger Lake-H LPC/eSPI Controller"), superm),
		disk,
		subsystem(
			device("02:00.0", "00:1c.0", "020000", "8086:1533", "igb", 9, intel, "I210 Gigabit Network Connection"), superm,
		),
		subsystem(device("03:00.0", "00:1c.0", "060400", "1a03:1150", "", 10, aspeed, "AST1150 PCI-to-PCI Bridge"), superm),
		console,
	}
}
