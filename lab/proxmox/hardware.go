package proxmox

import (
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

	o, cpu := fixed("node status"), fixed("processor")
	cpu["model"], cpu["vendor"], cpu["flags"], cpu["cpus"], cpu["cores"] = h.CPUModel, vendor, flags, h.Cores, h.Cores
	o["uptime"], o["cpuinfo"], o["boot-info"] = uptime(r.dc, h), cpu, boot
	o["pveversion"] = "pve-manager/" + hostos.Version + "/" + hostos.RepoID
	o["kversion"] = "Linux " + h.Boot.Kernel + " " + build
	o["memory"] = object{"total": total, "used": used, "free": total - used, "available": total - used}
	free := datacentre.RootBytes - datacentre.RootUsedBytes
	o["rootfs"] = object{
		"total": datacentre.RootBytes, "used": datacentre.RootUsedBytes, "free": free, "avail": free,
	}
	o["current-kernel"] = object{"sysname": "Linux", "machine": "x86_64", "release": h.Boot.Kernel, "version": build}

	return o, nil
}

// uptime is in modelled seconds since the host's last boot.
func uptime(dc *datacentre.Datacentre, h datacentre.Host) int {
	return int(time.Since(h.Boot.Since).Seconds()*dc.Clock().Speed()) + 1
}
