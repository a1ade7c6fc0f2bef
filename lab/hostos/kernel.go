package hostos

import (
	"slices"
	"strings"

	"golang.org/x/mod/semver"

	"talos-proxmox/lab/datacentre"
)

// bootFiles is what a host's disk determines about its next boot.
type bootFiles struct {
	kernel, commandLine string
	// modprobe is the text of all of modprobe.d in the initramfs.
	modprobe string
	// early are the modules that the initramfs loads, late those in modules-load.d.
	early, late []string
}

// firstKernelWithIOMMU is the first kernel of Proxmox that enables Intel's IOMMU by default.
const firstKernelWithIOMMU = "v6.8"

// boot returns what a host runs after a boot from these files.
func (f bootFiles) boot(h datacentre.HostOptions) datacentre.Boot {
	parameters := parseCommandLine(f.commandLine)
	rules := parseModprobe(f.modprobe)
	rules.addCommandLine(parameters)

	b := datacentre.Boot{Kernel: f.kernel, CommandLine: f.commandLine, IOMMU: iommuActive(h, f.kernel, parameters)}
	b.Drivers, b.Modules = bindDrivers(h, b.IOMMU, rules, f.early, f.late)

	if len(h.Pools) > 0 {
		b.Modules = append(b.Modules, "spl", "zfs")
		b.ARCMax, b.ARCMin = rules.bytes("zfs", "zfs_arc_max"), rules.bytes("zfs", "zfs_arc_min")
	}

	slices.Sort(b.Modules)
	b.Modules = slices.Compact(b.Modules)

	return b
}

// parseCommandLine returns the last value of each kernel parameter.
func parseCommandLine(line string) map[string]string {
	parameters := map[string]string{}

	for word := range strings.FieldsSeq(line) {
		name, value, _ := strings.Cut(word, "=")
		parameters[name] = value
	}

	return parameters
}

// iommuActive reports whether the IOMMU is on: the firmware has to offer it, a kernel parameter may disable it, and
// before Linux 6.8 Intel's is off by default.
func iommuActive(h datacentre.HostOptions, kernel string, parameters map[string]string) bool {
	own := "amd_iommu"
	if h.Intel() {
		own = "intel_iommu"
	}

	switch {
	case h.Firmware.IOMMUOff || parameters["iommu"] == "off" || parameters[own] == "off":
		return false
	case h.Intel() && semver.Compare(semver.MajorMinor("v"+kernel), firstKernelWithIOMMU) < 0:
		return slices.Contains(strings.Split(parameters[own], ","), "on")
	default:
		return true
	}
}
