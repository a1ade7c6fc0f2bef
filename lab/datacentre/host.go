package datacentre

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// HostOptions describes the hardware of a Proxmox host and its storages.
type HostOptions struct {
	Name string
	// Root is the folder that contains the host's file system, with the files of directory storages. A host without it
	// has no files.
	Root string `json:"-"`
	// Address is the host's address in the cluster, on its first bridge; Gateway and DNS are its router and name servers.
	Address   netip.Addr
	Gateway   netip.Addr
	DNS       []netip.Addr
	Cores     int
	CPUModel  string
	MemoryMiB int
	// Kernel is the installed kernel release.
	Kernel   string
	Firmware Firmware
	// Loader is the boot loader, LoaderSystemdBoot or LoaderGRUB; the default is Proxmox' choice for the firmware and
	// the root file system.
	Loader string
	// BootTool enables proxmox-boot-tool; it is always enabled with a root on ZFS.
	BootTool bool
	// Pools are the host's ZFS pools. The root file system is on the one with Root, or on ext4 in LVM.
	Pools []ZPool
	PCI   []PCIDevice
	USB   []USBDevice
	// Storages are the host's storages; DefaultStorages by default.
	Storages []StorageOptions
	// Bridges are network bridges, by default vmbr0; none is VLAN-aware.
	Bridges []string
	// Uplinks is how many of them, the first ones, have a network card as their port; by default one.
	Uplinks int
}

// Uplink returns the network card that is the port of a bridge: eno1 for the first one.
func Uplink(bridge int) string { return fmt.Sprintf("eno%d", bridge+1) }

// Tags reports whether a bridge has a port that tags VLANs.
func (h *HostOptions) Tags(bridge string) bool { return slices.Contains(h.Bridges[:h.Uplinks], bridge) }

// Host is a host as the cluster sees it.
type Host struct {
	HostOptions
	// ID is the host's number in the cluster, from 1.
	ID     int
	Online bool
	// Rebooting reports whether the host shuts down, starts, or failed to boot: see Problem.
	Rebooting bool
	// Boot is the host's current boot.
	Boot Boot
	// Problem is the error of a failed boot.
	Problem string
	// Disk is the fault of the root file system: DiskFull, DiskReadOnly or "".
	Disk string
	// MemoryUsedMiB and CoresUsed are those of the running VMs.
	MemoryUsedMiB, CoresUsed int
}

func (d *Datacentre) addHosts(list []HostOptions) error {
	for i, o := range list {
		if o.Name == "" || d.host(o.Name) != nil {
			return fmt.Errorf("host %d: name %q is empty or taken: give every host its own name", i, o.Name)
		}

		o, err := hostDefaults(o)
		if err != nil {
			return fmt.Errorf("host %s: %w", o.Name, err)
		}

		d.hosts = append(d.hosts, &o)
	}

	return nil
}

// host returns nil for an unknown name.
func (d *Datacentre) host(name string) *HostOptions {
	for _, h := range d.hosts {
		if h.Name == name {
			return h
		}
	}

	return nil
}

// CheckHost refuses a host that the cluster does not have.
func (d *Datacentre) CheckHost(name string) error {
	if d.host(name) != nil {
		return nil
	}

	return Refuse(
		"hostname lookup '%s' failed - failed to get address info for: %s: Name or service not known", name, name,
	)
}

// Hosts returns the hosts in the order of Options.Hosts.
func (d *Datacentre) Hosts() []Host {
	defer d.lockRead()()

	list := make([]Host, 0, len(d.hosts))

	for _, h := range d.hosts {
		v := d.hostView(h)
		v.MemoryUsedMiB, v.CoresUsed = d.usage(h.Name)
		list = append(list, v)
	}

	return list
}

// usage returns the memory and cores of a host's running VMs.
func (d *Datacentre) usage(host string) (memoryMiB, cores int) {
	for _, v := range d.state.VMs {
		if v.Host == host && v.Running && v.Hardware != nil {
			memoryMiB, cores = memoryMiB+v.Hardware.MemoryMiB, cores+v.Hardware.Cores
		}
	}

	return memoryMiB, cores
}

// Host returns one host.
func (d *Datacentre) Host(name string) (Host, bool) {
	for _, h := range d.Hosts() {
		if h.Name == name {
			return h, true
		}
	}

	return Host{}, false
}

// hardwareChange is what differs from the host's options; nil fields are unchanged.
type hardwareChange struct {
	PCI      []PCIDevice `json:"pci,omitempty"`
	Firmware *Firmware   `json:"firmware,omitempty"`
}

func (c hardwareChange) applyTo(o HostOptions) HostOptions {
	if c.PCI != nil {
		o.PCI = c.PCI
	}

	if o.PCI = slices.Clone(o.PCI); c.Firmware != nil {
		o.Firmware = *c.Firmware
	}

	return o
}

// HostChange is a change of a host's hardware.
type HostChange struct {
	// MovePCI moves a device from one slot to another, such as "0000:01:00".
	MovePCI [2]string `json:"movePci,omitzero"`
	// GroupWith moves all functions of a slot to the IOMMU group of the device with the second address.
	GroupWith [2]string `json:"groupWith,omitzero"`
	// RemovePCI removes all functions of a slot.
	RemovePCI string `json:"removePci,omitempty"`
	// IOMMU enables or disables the IOMMU in the firmware.
	IOMMU *bool `json:"iommu,omitempty"`
}

// ChangeHost changes a host's hardware with effect from its next boot.
func (d *Datacentre) ChangeHost(name string, c HostChange) error {
	if err := d.CheckHost(name); err != nil {
		return err
	}

	defer d.lockWrite()()

	s := d.hostState(name)
	next := s.Hardware

	if s.Pending != nil {
		next = *s.Pending
	}

	list := next.applyTo(*d.host(name)).PCI

	var err error

	if c.MovePCI[0] != "" {
		list, err = moveSlot(list, c.MovePCI[0], c.MovePCI[1])
	}

	if c.GroupWith[0] != "" && err == nil {
		err = joinGroup(list, c.GroupWith[0], c.GroupWith[1])
	}

	if slot := c.RemovePCI; slot != "" && err == nil {
		removed := HostOptions{PCI: list}.pciDevices(slot)
		if list = slices.DeleteFunc(list, func(p PCIDevice) bool { return slices.Contains(removed, p) }); len(removed) == 0 {
			err = fmt.Errorf("slot %s is empty", slot)
		}
	}

	if err != nil {
		return fmt.Errorf("host %s: %w", name, err)
	}

	if next.PCI = list; c.IOMMU != nil {
		firmware := next.applyTo(*d.host(name)).Firmware
		firmware.IOMMUOff = !*c.IOMMU
		next.Firmware = &firmware
	}

	s.Pending = &next

	return nil
}

func joinGroup(list []PCIDevice, slot, with string) error {
	host := HostOptions{PCI: list}
	members, target := host.pciDevices(slot), host.pciDevices(with)

	if len(members) == 0 || len(target) == 0 {
		return errors.New("no such devices: name a slot such as 0000:01:00 and a device such as 0000:02:00.0")
	}

	for i := range list {
		if slices.Contains(members, list[i]) {
			list[i].IOMMUGroup = target[0].IOMMUGroup
		}
	}

	return nil
}
