package proxmox

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/hostos"
)

var nodeCalls = map[string]handler{
	"GET /nodes":                           listNodes,
	"GET /nodes/{node}/version":            version,
	"GET /nodes/{node}/status":             nodeStatus,
	"GET /nodes/{node}/certificates/info":  certificates,
	"GET /nodes/{node}/network":            listNetwork,
	"GET /nodes/{node}/dns":                nameServers,
	"GET /nodes/{node}/hardware/pci":       listPCI,
	"GET /nodes/{node}/lxc":                emptyList,
	"GET /nodes/{node}/query-url-metadata": urlMetadata,
}

func listNodes(r *request) (any, error) {
	return rows(r.clusterHosts(), r.hostRow), nil
}

func listNetwork(r *request) (any, error) {
	list := []object{}
	h, kind := r.host(), r.params["type"]

	if kind == "eth" || kind == "" {
		for i := range h.Uplinks {
			o := staticFields("eth")
			o["iface"] = datacentre.Uplink(i)
			list = append(list, o)
		}
	}

	for i, b := range h.Bridges {
		if !slices.Contains([]string{"", "bridge", "any_bridge", "any_local_bridge"}, kind) || !r.canSeeBridge(b) {
			continue
		}

		o := staticFields("bridge")
		o["iface"], o["priority"] = b, 4+i

		if h.Tags(b) {
			o["bridge_ports"] = datacentre.Uplink(i)
		}

		if i == 0 && h.Address.IsValid() {
			o["method"], o["address"], o["cidr"], o["netmask"] = "static", h.Address.String(), h.Address.String()+"/24", "24"

			if h.Gateway.IsValid() {
				o["gateway"] = h.Gateway.String()
			}
		}

		list = append(list, o)
	}

	return list, nil
}

func nameServers(r *request) (any, error) {
	o := object{}
	for i, address := range r.host().DNS {
		o[fmt.Sprintf("dns%d", i+1)] = address.String()
	}

	return o, nil
}

// hiddenClasses are the PCI classes that PVE omits by default: memory controllers, bridges and processors.
const hiddenClasses = "05;06;0b"

// listPCI implements PVE::API2::Hardware::PCI and PVE::SysFSTools::lspci.
func listPCI(r *request) (any, error) {
	if !r.params.Has("pci-class-blacklist") {
		r.params["pci-class-blacklist"] = hiddenClasses
	}

	hidden, isVerbose := r.params.List("pci-class-blacklist"), !r.params.Has("verbose") || r.params.Bool("verbose")

	return rows(r.host().PCI, func(p datacentre.PCIDevice) object {
		if slices.ContainsFunc(hidden, func(class string) bool { return strings.HasPrefix(p.Class, "0x"+class) }) {
			return nil
		}

		o := object{
			"id": p.Address, "vendor": p.VendorID, "device": p.DeviceID, "class": p.Class, "iommugroup": p.IOMMUGroup,
		}

		if isVerbose {
			for key, value := range map[string]string{
				"vendor_name": p.Vendor, "device_name": p.Device, "subsystem_vendor": p.SubsystemVendor,
				"subsystem_device": p.SubsystemDevice,
			} {
				setNonEmpty(o, key, value)
			}
		}

		return o
	}), nil
}

func urlMetadata(r *request) (any, error) {
	size, name, err := r.dc.URLSize(r.ctx, r.params["url"])
	if err != nil {
		return nil, err
	}

	return object{"size": size, "filename": name, "mimetype": "application/octet-stream"}, nil
}

func nodeStatus(r *request) (any, error) {
	h := r.host()
	total, used := int64(h.MemoryMiB)<<20, int64(h.MemoryUsedMiB+1024)<<20
	build := hostos.KernelBuild(h)
	flags, vendor := "svm aes", "AuthenticAMD"
	boot := object{"mode": "efi", "secureboot": boolInt(h.Firmware.SecureBoot)}

	if h.Intel() {
		flags, vendor = "vmx aes", "GenuineIntel"
	}

	if h.Firmware.BIOS {
		boot = object{"mode": "legacy-bios"}
	}

	o, cpu := staticFields("node status"), staticFields("processor")
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

// uptime returns the modelled seconds since the host's last boot.
func uptime(dc *datacentre.Datacentre, h datacentre.Host) int {
	return int(time.Since(h.Boot.Since).Seconds()*dc.Clock().Speed()) + 1
}
