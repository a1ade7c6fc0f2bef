// Package hostfacts reads the facts of Proxmox hosts and checks plans against them, without Pulumi and without network.
package hostfacts

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"talos-proxmox/internal/spec"
)

// Format of the facts that this package reads.
const Format = 1

// Facts are what the host script prints about a host.
type Facts struct {
	Format  int      `json:"format"`
	System  System   `json:"system"`
	IOMMU   IOMMU    `json:"iommu"`
	Devices []Device `json:"devices"`
	// USB are its USB devices without hubs.
	USB []USBDevice `json:"usb"`
	ZFS ZFS         `json:"zfs"`
	// Storages, Machines and Containers are as Proxmox' API lists them; nil if it did not answer.
	Storages   []Storage `json:"storages"`
	Machines   []Guest   `json:"machines"`
	Containers []Guest   `json:"containers"`
	Prep       Prep      `json:"prep"`
}

// System is the host itself.
type System struct {
	Hostname string `json:"hostname"` // without its domain
	Node     string `json:"node"`     // name in Proxmox' API; empty if Proxmox does not run
	// the Proxmox cluster accepts changes; always true for a single host
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
	// BootLoader is the active one: grub or systemd-boot; empty = unknown.
	BootLoader         string `json:"bootLoader"`
	BootLoaderEvidence string `json:"bootLoaderEvidence"`
	// CommandLineFile holds the kernel command line for that boot loader.
	CommandLineFile string `json:"commandLineFile"`
	CommandLine     string `json:"commandLine"` // of the running kernel
	BootID          string `json:"bootId"`      // new at each start
}

// IOMMU is the state of the IOMMU in firmware and kernel.
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

// USBDevice is a USB device.
type USBDevice struct {
	Port string `json:"port"` // bus and ports: 1-4.2
	ID   string `json:"id"`   // vendor and product in hexadecimal: 10c4:ea60
	Name string `json:"name"` // of manufacturer and product, as the device says; often empty
}

// ZFS is the state of ZFS.
type ZFS struct {
	Loaded    bool   `json:"loaded"`
	ARCMax    int64  `json:"arcMax"`    // the running limit in bytes; 0 = ZFS' own default
	ARCWanted int64  `json:"arcWanted"` // the limit that the preparation sets; 0 = none
	Pools     []Pool `json:"pools"`
}

// Pool is a ZFS pool; sizes are in bytes.
type Pool struct {
	Name        string   `json:"name"`
	Size        int64    `json:"size"`
	Free        int64    `json:"free"`
	Health      string   `json:"health"` // ONLINE
	Ashift      int      `json:"ashift"` // 0 = chosen per disk by ZFS
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
	Enabled int    `json:"enabled"` // 0 = disabled, or limited to other hosts
	Shared  int    `json:"shared"`
	Total   int64  `json:"total"`
	Free    int64  `json:"avail"`
}

// Contents returns the accepted content types.
func (s Storage) Contents() []string {
	return slices.DeleteFunc(strings.Split(s.Content, ","), func(c string) bool { return c == "" })
}

// Thick reports whether disks are allocated at their full size instead of on write.
func (s Storage) Thick() bool { return s.Type == "lvm" || s.Type == "iscsi" }

// Guest is a VM or a container of the host.
type Guest struct {
	VMID   json.Number `json:"vmid"`
	Name   string      `json:"name"`
	Status string      `json:"status"`
	Memory int64       `json:"maxmem"` // bytes
}

// Prep is the host script's record of the preparation.
type Prep struct {
	Owner    string `json:"owner"`    // the stack that prepared the host
	Revision int    `json:"revision"` // raised by each apply that changes something
	// ChangedInBoot is the boot id of the last change that needs a reboot.
	ChangedInBoot string   `json:"changedInBoot"`
	Changes       []string `json:"changes"`  // what an apply would change
	Applied       []string `json:"applied"`  // what this run changed
	Problems      []string `json:"problems"` // why the host cannot be prepared
	Pending       []string `json:"pending"`  // how the running system differs from its files
}

// Parse reads the facts of a host.
func Parse(document []byte) (*Facts, error) {
	facts := &Facts{}
	if err := json.Unmarshal(document, facts); err != nil {
		return nil, fmt.Errorf("the host's facts are invalid: %w", err)
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

// ChangeReboot is listed in Changes if a reboot is needed.
const ChangeReboot = "reboot"

// NextRevision returns the host's revision after the next apply: the current one if nothing is to be changed.
func (f *Facts) NextRevision() int {
	if len(f.Prep.Changes) > 0 {
		return f.Prep.Revision + 1
	}

	return f.Prep.Revision
}

// Functions returns the functions at a planned PCI address: 0000:01:00 for all of a device, 0000:01:00.0 for one.
func (f *Facts) Functions(pci string) []Device {
	var functions []Device

	for _, d := range f.Devices {
		if d.Address == pci || (!strings.Contains(pci, ".") && strings.HasPrefix(d.Address, pci+".")) {
			functions = append(functions, d)
		}
	}

	return functions
}

// USBDevices returns the devices that a planned USB device means: by its port, or else by its id.
func (f *Facts) USBDevices(planned spec.USB) (found []USBDevice) {
	for _, d := range f.USB {
		if d.Port == planned.Port || planned.Port == "" && d.ID == planned.ID {
			found = append(found, d)
		}
	}

	return found
}

// RebootRequired reports whether the running system differs from its files.
func (f *Facts) RebootRequired() bool { return len(f.Prep.Pending) > 0 }

// Running returns the VMIDs of running machines and containers.
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
	oldestPVE    = 8 // its end of life is in endOfPVE
	minAshift    = 12
)

// title returns the device's name, or else its class and ids.
func (d Device) title() string {
	return cmp.Or(d.Name, fmt.Sprintf("class %s, id %s:%s", d.Class, d.Vendor, d.Device))
}

// label names a device for messages: 0000:00:17.0 SATA controller: … (driver ahci).
func (d Device) label() string {
	label := d.Address + " " + d.title()
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
