package datacentre

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// DefaultKernel is the kernel of Proxmox VE 9.2.
const DefaultKernel = "6.17.2-1-pve"

// Boot loaders.
const (
	LoaderSystemdBoot = "systemd-boot"
	LoaderGRUB        = "grub"
)

// Firmware holds a host's firmware settings. The zero value is EFI without Secure Boot, with the IOMMU enabled.
type Firmware struct {
	BIOS       bool `json:"bios,omitempty"`
	SecureBoot bool `json:"secureBoot,omitempty"`
	IOMMUOff   bool `json:"iommuOff,omitempty"`
}

// ZPool is a ZFS pool of a host.
type ZPool struct {
	Name      string
	SizeBytes int64
	// Mirror reports whether the disks mirror each other; otherwise they are striped.
	Mirror bool
	// Disks are the names of the disks in /dev/disk/by-id.
	Disks []string
	// Ashift is the exponent of the sector size; 12 by default.
	Ashift int
	// Health is ONLINE by default.
	Health string
	// Root reports whether the root file system is on the pool.
	Root bool
}

// The size of the root file system, and how much of it Proxmox VE occupies.
const (
	RootBytes     = 100 * GiB
	RootUsedBytes = 8 * GiB
)

// PoolUsed returns the used bytes of a pool: its storages' volumes, and the system if it is the root pool.
func (d *Datacentre) PoolUsed(hostName string, p ZPool) int64 {
	var used int64
	if p.Root {
		used = RootUsedBytes
	}

	for _, s := range d.Storages(hostName) {
		if s.Type == "zfspool" {
			used += s.UsedBytes
		}
	}

	return used
}

// PCIDevice is a PCI device of a host.
type PCIDevice struct {
	// Address is the full address, "0000:01:00.0"; Bus that of the bridge above, empty on the root bus.
	Address, Bus string
	// Vendor and Device are names of the PCI ID database.
	Vendor, Device string
	// VendorID, DeviceID, SubsystemVendor and SubsystemDevice have the prefix "0x"; Class is such as "0x030000".
	VendorID, DeviceID, SubsystemVendor, SubsystemDevice, Class string
	// Driver is the kernel module that claims the device by default.
	Driver string
	// IOMMUGroup is the group while the IOMMU is active; -1 in a Host whose IOMMU is not.
	IOMMUGroup int
	// BootDisk marks the controller of the disk with the root file system, which the host cannot release.
	BootDisk bool
}

// Bridge reports whether the device is a PCI bridge, which VFIO ignores.
func (p PCIDevice) Bridge() bool { return strings.HasPrefix(p.Class, "0x06") }

// GPU reports whether the device is a display or 3D controller of a GPU vendor, unlike a server's console.
func (p PCIDevice) GPU() bool {
	return strings.HasPrefix(p.Class, "0x03") && slices.Contains([]string{"0x10de", "0x1002", "0x8086"}, p.VendorID)
}

// IDs returns vendor and device as "10de:27b0".
func (p PCIDevice) IDs() string { return idPair(p.VendorID, p.DeviceID) }

// SubsystemIDs returns the subsystem's vendor and device; without a subsystem, zeros, which Proxmox compares too.
func (p PCIDevice) SubsystemIDs() string {
	return idPair(cmp.Or(p.SubsystemVendor, "0x0000"), cmp.Or(p.SubsystemDevice, "0x0000"))
}

func idPair(vendor, device string) string {
	return strings.ToLower(strings.TrimPrefix(vendor, "0x") + ":" + strings.TrimPrefix(device, "0x"))
}

func hostDefaults(o HostOptions) (HostOptions, error) {
	o.Root = cmp.Or(o.Root, os.DevNull)
	o.Cores = cmp.Or(o.Cores, 16)
	o.CPUModel = cmp.Or(o.CPUModel, "AMD EPYC 4564P 16-Core Processor")
	o.MemoryMiB = cmp.Or(o.MemoryMiB, 64*1024)
	o.Kernel = cmp.Or(o.Kernel, DefaultKernel)

	o.Pools = slices.Clone(o.Pools)
	for i, p := range o.Pools {
		o.Pools[i].Ashift, o.Pools[i].Health = cmp.Or(p.Ashift, 12), cmp.Or(p.Health, "ONLINE")
	}

	o.PCI = slices.Clone(o.PCI)
	sortPCI(o.PCI)

	o.BootTool = o.BootTool || o.ZFSRoot() != ""
	if o.Loader == "" && o.ZFSRoot() != "" && !o.Firmware.BIOS && !o.Firmware.SecureBoot {
		o.Loader = LoaderSystemdBoot
	}

	o.Loader = cmp.Or(o.Loader, LoaderGRUB)

	if len(o.Storages) == 0 {
		o.Storages = DefaultStorages()
	}

	if len(o.Bridges) == 0 {
		o.Bridges = []string{"vmbr0"}
	}

	o.Uplinks = min(max(o.Uplinks, 1), len(o.Bridges))

	var err error

	o.Root, err = filepath.Abs(o.Root)

	return o, err
}

// Intel reports whether the host's CPU is from Intel; all others are from AMD.
func (o HostOptions) Intel() bool { return strings.Contains(o.CPUModel, "Intel") }

// ZFSRoot returns the pool of the root file system, or "" if that is ext4.
func (o HostOptions) ZFSRoot() string {
	for _, p := range o.Pools {
		if p.Root {
			return p.Name
		}
	}

	return ""
}

// pciDevices returns the functions that a PCI id such as "01:00", "0000:01:00.0" or "01:00.0" selects.
func (o HostOptions) pciDevices(id string) []PCIDevice {
	if strings.Count(id, ":") == 1 {
		id = "0000:" + id
	}

	var list []PCIDevice

	for _, p := range o.PCI {
		if p.Address == id || (!strings.Contains(id, ".") && strings.HasPrefix(p.Address, id+".")) {
			list = append(list, p)
		}
	}

	return list
}

var slotPattern = regexp.MustCompile(`^([0-9a-f]{4,}):([0-9a-f]{2}):([0-9a-f]{2})$`)

// moveSlot moves all functions of a device to another slot. The devices keep their bus.
func moveSlot(list []PCIDevice, from, to string) ([]PCIDevice, error) {
	if !slotPattern.MatchString(from) || !slotPattern.MatchString(to) {
		return nil, fmt.Errorf("slots %q and %q: write them as 0000:01:00", from, to)
	}

	host := HostOptions{PCI: list}
	if taken := host.pciDevices(to); len(taken) > 0 {
		return nil, fmt.Errorf("slot %s is taken by %s %s", to, taken[0].Vendor, taken[0].Device)
	}

	if len(host.pciDevices(from)) == 0 {
		return nil, fmt.Errorf("slot %s is empty", from)
	}

	next := slices.Clone(list)
	for i, p := range next {
		if rest, found := strings.CutPrefix(p.Address, from+"."); found {
			next[i].Address = to + "." + rest
		}
	}

	sortPCI(next)

	return next, nil
}

func sortPCI(list []PCIDevice) {
	slices.SortFunc(list, func(a, b PCIDevice) int { return strings.Compare(a.Address, b.Address) })
}
