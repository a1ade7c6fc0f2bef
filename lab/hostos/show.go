package hostos

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"talos-proxmox/lab/datacentre"
)

// kernelFolders belong to the kernel: files that are not in the tree are removed from them.
var kernelFolders = []string{"proc", "sys"}

// tree is what the kernel shows: content by path; for symbolic links the target after an arrow.
type tree map[string]string

const (
	arrow = "-> "
	// unchanged is the content of a file that stays as it is.
	unchanged = "\x00"
)

func (t tree) link(name, to string) {
	rel, err := filepath.Rel(filepath.Dir(name), to)
	if err != nil {
		panic(err) // both are relative to the root
	}

	t[name] = arrow + rel
}

// Show writes /proc and /sys. It touches only what differs, so that a concurrent script sees a complete tree.
func (System) Show(h datacentre.Host) error {
	d := disk(h.Root)
	t := tree{}
	t.addProc(h)
	t.addFirmware(h)
	t.addPCI(h)
	t.addUSB(h)
	t.addZFS(h)

	// Parameters are set at boot; later writes stay.
	if d.text(bootID) == t[bootID] {
		for _, name := range []string{arcParameter("max"), arcParameter("min")} {
			if _, known := t[name]; known && d.exists(name) {
				t[name] = unchanged
			}
		}
	}

	return d.apply(t)
}

func (d disk) apply(t tree) error {
	for name, content := range t {
		target, isLink := strings.CutPrefix(content, arrow)

		switch {
		case content == unchanged:
		case isLink:
			if now, err := os.Readlink(d.path(name)); err == nil && now == target {
				continue
			}

			if err := d.replaceLink(name, target); err != nil {
				return err
			}
		case !d.exists(name) || d.text(name) != content:
			if err := d.write(name, content); err != nil {
				return err
			}
		}
	}

	for _, folder := range kernelFolders {
		if err := d.prune(t, folder); err != nil {
			return err
		}
	}

	return nil
}

func (d disk) replaceLink(name, target string) error {
	if err := os.MkdirAll(filepath.Dir(d.path(name)), 0o700); err != nil {
		return err
	}

	temporary := d.path(name) + ".lab-new"
	if err := os.Symlink(target, temporary); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}

	return os.Rename(temporary, d.path(name))
}

// prune removes files that are no longer there, and folders that become empty.
func (d disk) prune(t tree, folder string) error {
	entries, err := os.ReadDir(d.path(folder))
	if err != nil {
		return err
	}

	for _, e := range entries {
		name := folder + "/" + e.Name()

		switch _, wanted := t[name]; {
		case wanted:
		case e.IsDir():
			if err := d.prune(t, name); err != nil {
				return err
			}

			_ = os.Remove(d.path(name)) // fails unless it is empty
		default:
			if err := os.Remove(d.path(name)); err != nil {
				return err
			}
		}
	}

	return nil
}

func (t tree) addProc(h datacentre.Host) {
	t["proc/cmdline"] = h.Boot.CommandLine + "\n"
	t[bootID] = h.Boot.ID + "\n"

	total, used := int64(h.MemoryMiB)<<10, int64(h.MemoryUsedMiB+hostMemoryMiB)<<10
	t["proc/meminfo"] = fmt.Sprintf("MemTotal:       %8d kB\nMemAvailable:   %8d kB\n", total, total-used)

	vendor := "AuthenticAMD"
	if h.Intel() {
		vendor = "GenuineIntel"
	}

	var cpus strings.Builder
	for i := range h.Cores {
		fmt.Fprintf(&cpus, "processor\t: %d\nvendor_id\t: %s\nmodel name\t: %s\n\n", i, vendor, h.CPUModel)
	}

	t["proc/cpuinfo"] = cpus.String()
}

const bootID = "proc/sys/kernel/random/boot_id"

// hostMemoryMiB is Proxmox' own memory.
const hostMemoryMiB = 1024

// KernelBuild returns what uname -v prints.
func KernelBuild(h datacentre.Host) string {
	return "#1 SMP PREEMPT_DYNAMIC PMX " + strings.TrimSuffix(h.Boot.Kernel, "-pve") + " (2025-10-21T11:55Z)"
}

// secureBootVariable is the EFI variable of Secure Boot: four bytes of attributes, then 1 or 0.
const secureBootVariable = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"

func (t tree) addFirmware(h datacentre.Host) {
	if !h.Firmware.BIOS {
		t[secureBootVariable] = "\x06\x00\x00\x00\x00"

		if h.Firmware.SecureBoot {
			t[secureBootVariable] = "\x06\x00\x00\x00\x01"
		}
	}

	if !h.Firmware.IOMMUOff {
		table := map[bool]string{false: "IVRS", true: "DMAR"}[h.Intel()]
		t["sys/firmware/acpi/tables/"+table] = table
	}
}

func (t tree) addZFS(h datacentre.Host) {
	if !slices.Contains(h.Boot.Modules, "zfs") {
		return
	}

	highest, lowest := arcLimits(h)
	t[arcParameter("max")], t[arcParameter("min")] = fmt.Sprintln(h.Boot.ARCMax), fmt.Sprintln(h.Boot.ARCMin)
	t["proc/spl/kstat/zfs/arcstats"] = fmt.Sprintf(
		"9 1 0x01 147 39984 3216518241 4321\nname                            type data\n"+
			"size                            4    %d\nc                               4    %d\nc_min                           4    %d\nc_max                           4    %d\n",
		min(highest, 4*datacentre.GiB), highest, lowest, highest,
	)
}

func arcParameter(name string) string { return "sys/module/zfs/parameters/zfs_arc_" + name }

// arcLimits are the limits that ZFS derives from its parameters: by default all memory but a GiB, and 1/32 of it.
func arcLimits(h datacentre.Host) (highest, lowest int64) {
	memory := int64(h.MemoryMiB) << 20
	if highest, lowest = memory-datacentre.GiB, memory/32; h.Boot.ARCMin > 0 {
		lowest = h.Boot.ARCMin
	}

	// A maximum that is not above the minimum is ignored.
	if h.Boot.ARCMax > lowest {
		highest = h.Boot.ARCMax
	}

	return highest, lowest
}

// ReadARC returns ZFS' limits as scripts have written them below /sys; false if the host has no ZFS.
func (System) ReadARC(h datacentre.Host) (highest, lowest int64, ok bool) {
	d := disk(h.Root)

	text, err := d.read(arcParameter("max"))
	if err != nil {
		return 0, 0, false
	}

	highest, err = strconv.ParseInt(strings.TrimSpace(text), 0, 64)
	lowest, errMin := strconv.ParseInt(strings.TrimSpace(d.text(arcParameter("min"))), 0, 64)

	return highest, lowest, err == nil && errMin == nil && highest >= 0 && lowest >= 0
}
