package datacentre

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"golang.org/x/mod/semver"
)

// Boot is what a host runs with since it was last switched on.
type Boot struct {
	// ID is new at every boot, a UUID.
	ID          string    `json:"id"`
	Since       time.Time `json:"since"`
	Kernel      string    `json:"kernel"`
	CommandLine string    `json:"commandLine"`
	// IOMMU says that the IOMMU is active; without it there are no groups and nothing is passed through.
	IOMMU bool `json:"iommu"`
	// Drivers are the modules that serve the PCI devices, by address. A device that nothing serves is not in it.
	Drivers map[string]string `json:"drivers"`
	// Modules are those that are loaded.
	Modules []string `json:"modules"`
	// ARCMax and ARCMin are ZFS' parameters in bytes; 0 is ZFS' own choice.
	ARCMax int64 `json:"arcMax"`
	ARCMin int64 `json:"arcMin"`
}

// BootFiles is what a host's disk says about its next boot.
type BootFiles struct {
	Kernel, CommandLine string
	// Modprobe is the text of all of modprobe.d as the initramfs has it.
	Modprobe string
	// Early are the modules that the initramfs loads, Late those of modules-load.d.
	Early, Late []string
}

// firstWithIOMMU is the first kernel of Proxmox that switches Intel's IOMMU on by itself.
const firstWithIOMMU = "v6.8"

// NewBoot is what a host runs with after it has booted from these files.
func NewBoot(h HostOptions, f BootFiles) Boot {
	words := kernelWords(f.CommandLine)
	rules := parseModprobe(f.Modprobe)
	rules.addWords(words)

	b := Boot{
		ID:          uuid.NewString(),
		Since:       time.Now(),
		Kernel:      f.Kernel,
		CommandLine: f.CommandLine,
		IOMMU:       iommuActive(h, f.Kernel, words),
	}
	b.Drivers, b.Modules = bind(h, b.IOMMU, rules, f.Early, f.Late)

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
func iommuActive(h HostOptions, kernel string, words map[string]string) bool {
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

// DefaultCommandLine is the kernel's command line of a fresh installation, as the boot loader passes it on.
func (o HostOptions) DefaultCommandLine() string {
	switch pool := o.ZFSRoot(); {
	case pool != "" && o.Loader == LoaderSystemdBoot:
		return fmt.Sprintf(`initrd=\EFI\proxmox\%[1]s\initrd.img-%[1]s root=ZFS=%[2]s/ROOT/pve-1 boot=zfs`, o.Kernel, pool)
	case pool != "":
		return fmt.Sprintf(
			"BOOT_IMAGE=/vmlinuz-%[1]s root=ZFS=/ROOT/pve-1 ro root=ZFS=%[2]s/ROOT/pve-1 boot=zfs quiet", o.Kernel, pool,
		)
	default:
		return fmt.Sprintf("BOOT_IMAGE=/boot/vmlinuz-%s root=/dev/mapper/pve-root ro quiet", o.Kernel)
	}
}
