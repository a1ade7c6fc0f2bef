// Package hostfacts knows Proxmox hosts: what their facts mean for a plan. No Pulumi, no network.
package hostfacts

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Format of the facts that this package reads.
const Format = 1

// Facts are what the host script prints about a host.
type Facts struct {
	Format  int      `json:"format"`
	System  System   `json:"system"`
	IOMMU   IOMMU    `json:"iommu"`
	Devices []Device `json:"devices"`
	ZFS     ZFS      `json:"zfs"`
	// Storages, Machines and Containers are as Proxmox' API lists them; nil where it did not answer.
	Storages   []Storage `json:"storages"`
	Machines   []Guest   `json:"machines"`
	Containers []Guest   `json:"containers"`
	Prep       Prep      `json:"prep"`
}

// System is the host itself.
type System struct {
	Hostname string `json:"hostname"` // without its domain
	Node     string `json:"node"`     // what Proxmox' API calls it; empty where Proxmox does not run
	// what must be written for the whole Proxmox cluster can be; true for a host that stands alone
	Quorate      bool   `json:"quorate"`
	PVE          string `json:"pve"`       // 9.1.1
	Kernel       string `json:"kernel"`    // of the running system
	CPUVendor    string `json:"cpuVendor"` // amd, intel, or empty for others
	CPUModel     string `json:"cpuModel"`
	Cores        int    `json:"cores"`
	MemoryKiB    int64  `json:"memoryKiB"`
	AvailableKiB int64  `json:"availableKiB"`
	UEFI         bool   `json:"uefi"`
	SecureBoot   bool   `json:"secureBoot"`
	// BootLoader is the one in charge: grub or systemd-boot; empty = could not be found out.
	BootLoader         string `json:"bootLoader"`
	BootLoaderEvidence string `json:"bootLoaderEvidence"`
	// CommandLineFile is where that boot loader's kernel command line is edited.
	CommandLineFile string `json:"commandLineFile"`
	CommandLine     string `json:"commandLine"` // of the running kernel
	BootID          string `json:"bootId"`      // a new one at each start
}

// IOMMU says whether the firmware offers one and the kernel uses it.
type IOMMU struct {
	Firmware []string `json:"firmware"` // DMAR (Intel), IVRS (AMD)
	Groups   int      `json:"groups"`   // 0 = the kernel does not use it
}

// Device is a PCI function. Numbers are hexadecimal without 0x.
type Device struct {
	Address         string `json:"address"` // 0000:01:00.0
	Vendor          string `json:"vendor"`
	Device          string `json:"device"`
	Class           string `json:"class"`
	SubsystemVendor string `json:"subsystem_vendor"` //nolint:tagliatelle // the file's name in sysfs
	SubsystemDevice string `json:"subsystem_device"` //nolint:tagliatelle // the file's name in sysfs
	Group           string `json:"group"`            // its IOMMU group; empty without one
	Driver          string `json:"driver"`           // empty without one
	Name            string `json:"name"`             // as lspci prints it
}

// ZFS is the state of ZFS.
type ZFS struct {
	Loaded    bool   `json:"loaded"`
	ARCMax    int64  `json:"arcMax"`    // the running limit in bytes; 0 = ZFS' own default
	ARCWanted int64  `json:"arcWanted"` // what the preparation wants; 0 = nothing
	Pools     []Pool `json:"pools"`
}

// Pool is a ZFS pool; sizes are in bytes.
type Pool struct {
	Name        string   `json:"name"`
	Size        int64    `json:"size"`
	Free        int64    `json:"free"`
	Health      string   `json:"health"` // ONLINE
	Ashift      int      `json:"ashift"` // 0 = ZFS chose one for each disk
	Compression string   `json:"compression"`
	Xattr       string   `json:"xattr"`
	Vdevs       []string `json:"vdevs"` // mirror-0, raidz1-0, or a disk
}

// Storage is a Proxmox storage as the host sees it; sizes are in bytes.
type Storage struct {
	Name    string `json:"storage"`
	Type    string `json:"type"`
	Content string `json:"content"` // iso,vztmpl
	Active  int    `json:"active"`
	Enabled int    `json:"enabled"` // 0 where it is disabled, or limited to other hosts
	Shared  int    `json:"shared"`
	Total   int64  `json:"total"`
	Free    int64  `json:"avail"`
}

// Contents are the types of what it takes.
func (s Storage) Contents() []string {
	return slices.DeleteFunc(strings.Split(s.Content, ","), func(c string) bool { return c == "" })
}

// Thick says whether disks on it take all of their size at once, and not only what is written to them.
func (s Storage) Thick() bool { return s.Type == "lvm" || s.Type == "iscsi" }

// Guest is a VM or a container of the host.
type Guest struct {
	VMID   json.Number `json:"vmid"`
	Name   string      `json:"name"`
	Status string      `json:"status"`
	Memory int64       `json:"maxmem"` // bytes
}

// Prep is what the host script knows of its own work.
type Prep struct {
	Owner    string `json:"owner"`    // the stack that prepared the host
	Revision int    `json:"revision"` // raised by each apply that changes something
	// ChangedInBoot is the boot during which something was changed that a reboot completes.
	ChangedInBoot string   `json:"changedInBoot"`
	Changes       []string `json:"changes"`  // what an apply would change
	Applied       []string `json:"applied"`  // what this run changed
	Problems      []string `json:"problems"` // why the host cannot be prepared
	Pending       []string `json:"pending"`  // why the running system is not what the files say
}

// Parse reads the facts of a host.
func Parse(document []byte) (*Facts, error) {
	facts := &Facts{}
	if err := json.Unmarshal(document, facts); err != nil {
		return nil, fmt.Errorf("the host's facts are not what they should be: %w", err)
	}

	if facts.Format != Format {
		return nil, fmt.Errorf(
			"the host's facts have format %d and not %d: use the talosops and the program of one version", facts.Format, Format,
		)
	}

	if facts.System.MemoryKiB == 0 || facts.System.Cores == 0 {
		return nil, errors.New("the host's facts name neither memory nor cores: is it a Linux host with /proc?")
	}

	return facts, nil
}

// ChangeReboot stands among the changes where the running system is not as wanted and must be.
const ChangeReboot = "reboot"

// NextRevision is the revision that the host has after the next apply; the same as now while there is nothing to
// change.
func (f *Facts) NextRevision() int {
	if len(f.Prep.Changes) > 0 {
		return f.Prep.Revision + 1
	}

	return f.Prep.Revision
}

// Functions returns the functions at a PCI address as a plan sets it: 0000:01:00 for all of a device, 0000:01:00.0
// for one.
func (f *Facts) Functions(pci string) []Device {
	var functions []Device

	for _, d := range f.Devices {
		if d.Address == pci || (!strings.Contains(pci, ".") && strings.HasPrefix(d.Address, pci+".")) {
			functions = append(functions, d)
		}
	}

	return functions
}

// RebootRequired says whether the running system is not what the files say.
func (f *Facts) RebootRequired() bool { return len(f.Prep.Pending) > 0 }

// Running returns the VMIDs of the machines and containers that run.
func (f *Facts) Running() []string {
	var running []string

	for _, guest := range slices.Concat(f.Machines, f.Containers) {
		if guest.Status == "running" {
			running = append(running, guest.VMID.String())
		}
	}

	return running
}

const (
	vendorNVIDIA = "10de"
	classDisplay = "03"
	classBridge  = "06"
	driverVFIO   = "vfio-pci"
	healthOnline = "ONLINE"
	bytesPerGiB  = 1 << 30
	bytesPerTiB  = 1 << 40
	kibPerMiB    = 1 << 10
	bytesPerMiB  = 1 << 20
	leastPVE     = 8 // whose end endOfPVE has
	leastAshift  = 12
)

// slot is the address of a function's device.
func (d Device) slot() string {
	slot, _, _ := strings.Cut(d.Address, ".")

	return slot
}

// label names a device for a person: 0000:00:17.0 SATA controller: … (ahci).
func (d Device) label() string {
	name := d.Name
	if name == "" {
		name = fmt.Sprintf("class %s, id %s:%s", d.Class, d.Vendor, d.Device)
	}

	label := d.Address + " " + name
	if d.Driver != "" {
		label += " (driver " + d.Driver + ")"
	}

	return label
}

func labels(devices []Device) string {
	list := make([]string, 0, len(devices))
	for _, d := range devices {
		list = append(list, d.label())
	}

	return strings.Join(list, ", ")
}
