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
