package proxmox

import (
	"strings"
	"time"

	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/hostos"
)

func nodeStatus(r *request, h datacentre.Host) (any, error) {
	total, used := int64(h.MemoryMiB)<<20, int64(h.MemoryUsedMiB+1024)<<20
	build := hostos.KernelBuild(h)
	flags, vendor := "svm aes", "AuthenticAMD"
	boot := object{"mode": "efi", "secureboot": flag(h.Firmware.SecureBoot)}

	if h.Intel() {
		flags, vendor = "vmx aes", "GenuineIntel"
	}

	if h.Firmware.BIOS {
		boot = object{"mode": "legacy-bios"}
	}

	return object{
		"cpu": 0.01, "wait": 0, "idle": 0, "uptime": uptime(r.dc, h), "loadavg": []string{"0.10", "0.10", "0.10"},
		"pveversion": "pve-manager/" + hostos.Version + "/" + hostos.RepoID,
		"kversion":   "Linux " + h.Boot.Kernel + " " + build,
		"cpuinfo": object{
			"model":   h.CPUModel,
			"vendor":  vendor,
			"family":  "6",
			"cpus":    h.Cores,
			"cores":   h.Cores,
			"sockets": 1,
			"mhz":     "3600.000",
			"hvm":     "1",
			"flags":   flags,
			"user_hz": 100,
		},
		"memory": object{"total": total, "used": used, "free": total - used, "available": total - used},
		"swap":   object{"total": 0, "used": 0, "free": 0},
		"rootfs": object{
			"total": datacentre.RootBytes,
			"used":  datacentre.RootUsedBytes,
			"free":  datacentre.RootBytes - datacentre.RootUsedBytes,
			"avail": datacentre.RootBytes - datacentre.RootUsedBytes,
		},
		"ksm": object{"shared": 0}, "boot-info": boot,
		"current-kernel": object{"sysname": "Linux", "machine": "x86_64", "release": h.Boot.Kernel, "version": build},
	}, nil
}

// uptime is in modelled seconds since the host's last boot.
func uptime(dc *datacentre.Datacentre, h datacentre.Host) int {
	return int(time.Since(h.Boot.Since).Seconds()*dc.Clock().Speed()) + 1
}

// powerNode reboots a host. The lab has no one who would switch one on again.
func powerNode(r *request, h datacentre.Host) (any, error) {
	if r.params.get("command") != "reboot" {
		return nil, &datacentre.Error{Status: 501, Message: "the lab's hosts only reboot"}
	}

	return done(r.dc.RebootHost(h.Name))
}

// listPCI leaves out what is not passed through, unless asked for: memory controllers, bridges, processors.
func listPCI(r *request, h datacentre.Host) (any, error) {
	hidden := []string{"05", "06", "0b"}
	if r.params.has("pci-class-blacklist") {
		hidden = r.params.list("pci-class-blacklist")
	}

	verbose := !r.params.has("verbose") || r.params.bool("verbose")
	list := []object{}

devices:
	for _, p := range h.PCI {
		for _, class := range hidden {
			if strings.HasPrefix(p.Class, "0x"+class) {
				continue devices
			}
		}

		o := object{"id": p.Address, "class": p.Class, "vendor": p.VendorID, "device": p.DeviceID, "iommugroup": p.IOMMUGroup}
		list = append(list, o)

		if !verbose {
			continue
		}

		add(o, "vendor_name", p.Vendor)
		add(o, "device_name", p.Device)
		o["subsystem_vendor"], o["subsystem_device"] = "0x"+p.SubsystemIDs()[:4], "0x"+p.SubsystemIDs()[5:]

		if p.SubsystemVendor == p.VendorID {
			add(o, "subsystem_vendor_name", p.Vendor)
		}
	}

	return list, nil
}

func listZFS(r *request, h datacentre.Host) (any, error) {
	list := []object{}

	for _, p := range h.Pools {
		used := r.dc.PoolUsed(h.Name, p)
		list = append(list, object{
			"name":   p.Name,
			"size":   p.SizeBytes,
			"alloc":  used,
			"free":   p.SizeBytes - used,
			"frag":   1,
			"dedup":  1,
			"health": p.Health,
		})
	}

	return list, nil
}
