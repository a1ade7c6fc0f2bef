package hostos

import (
	"slices"
	"strings"

	"golang.org/x/mod/semver"

	"talos-proxmox/lab/datacentre"
)

// bootFiles is what a host's disk says about its next boot.
type bootFiles struct {
	kernel, commandLine string
	// modprobe is the text of all of modprobe.d as the initramfs has it.
	modprobe string
	// early are the modules that the initramfs loads, late those of modules-load.d.
	early, late []string
}

// firstWithIOMMU is the first kernel of Proxmox that switches Intel's IOMMU on by itself.
const firstWithIOMMU = "v6.8"

// boot is what a host runs with after it has booted from these files.
func (f bootFiles) boot(h datacentre.HostOptions) datacentre.Boot {
	words := kernelWords(f.commandLine)
	rules := parseModprobe(f.modprobe)
	rules.addWords(words)

	b := datacentre.Boot{Kernel: f.kernel, CommandLine: f.commandLine, IOMMU: iommuActive(h, f.kernel, words)}
	b.Drivers, b.Modules = bind(h, b.IOMMU, rules, f.early, f.late)

	if len(h.Pools) > 0 {
		b.Modules = append(b.Modules, "spl", "zfs")
		b.ARCMax, b.ARCMin = rules.bytes("zfs", "zfs_arc_max"), rules.bytes("zfs", "zfs_arc_min")
	}

	slices.Sort(b.Modules)
	b.Modules = slices.Compact(b.Modules)

	return b
}

// kernelWords are the command line's words: name to last value.
func kernelWords(line string) map[string]string {
	words := map[string]string{}

	for word := range strings.FieldsSeq(line) {
		name, value, _ := strings.Cut(word, "=")
		words[name] = value
	}

	return words
}

// iommuActive says whether the IOMMU is on: the firmware has to offer it, the kernel's words may refuse it, and before
// Linux 6.8 Intel's had to be asked for.
func iommuActive(h datacentre.HostOptions, kernel string, words map[string]string) bool {
	own := "amd_iommu"
	if h.Intel() {
		own = "intel_iommu"
	}

	switch {
	case h.Firmware.IOMMUOff || words["iommu"] == "off" || words[own] == "off":
		return false
	case h.Intel() && semver.Compare(semver.MajorMinor("v"+kernel), firstWithIOMMU) < 0:
		return slices.Contains(strings.Split(words[own], ","), "on")
	default:
		return true
	}
}
