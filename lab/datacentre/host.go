package datacentre

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// HostOptions is the hardware of a Proxmox host and its storages.
type HostOptions struct {
	Name string
	// Root is the folder that stands for the host's file system; files of directory storages lie in it. A host without
	// one has no files.
	Root string `json:"-"`
	// Address is what the cluster knows the host by.
	Address   netip.Addr
	Cores     int
	CPUModel  string
	MemoryMiB int
	// Kernel is the release that is installed and boots.
	Kernel   string
	Firmware Firmware
	// Loader is what the firmware starts: LoaderSystemdBoot or LoaderGRUB; by default Proxmox' own choice for the firmware
	// and the root file system.
	Loader string
	// BootTool says that proxmox-boot-tool keeps the boot loader's partition; always so with a root on ZFS.
	BootTool bool
	// Pools are the host's ZFS pools. The root file system lies on the one that says so, else on ext4 in LVM.
	Pools []ZPool
	PCI   []PCIDevice
	// Storages are the host's storages; DefaultStorages when empty.
	Storages []StorageOptions
	// Bridges are the host's network bridges, vmbr0 when empty; the first has Uplink as its port, and none is VLAN-aware.
	Bridges []string
}

// Uplink is the network card of every host.
const Uplink = "eno1"

// Host is a host as the cluster sees it.
type Host struct {
	HostOptions
	// ID is the host's number in the cluster, from 1.
	ID     int
	Online bool
	// Rebooting says that it is on its way down or up, or does not come up: see Problem.
	Rebooting bool
	// Boot is what it runs with.
	Boot Boot
	// Problem is why it does not come up, empty while it runs or is on its way.
	Problem string
	// Disk is what is wrong with its root file system: DiskFull, DiskReadOnly or nothing.
	Disk string
	// MemoryUsedMiB and CoresUsed are those of its running VMs.
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

// NeedHost refuses a host that the cluster does not have.
func (d *Datacentre) NeedHost(name string) error {
	if d.host(name) != nil {
		return nil
	}

	return Refuse(
		"hostname lookup '%s' failed - failed to get address info for: %s: Name or service not known", name, name,
	)
}

// Hosts returns the hosts in the order they were given.
func (d *Datacentre) Hosts() []Host {
	defer d.reading()()

	list := make([]Host, 0, len(d.hosts))

	for _, h := range d.hosts {
		v := d.hostView(h)
		v.MemoryUsedMiB, v.CoresUsed = d.inUse(h.Name)
		list = append(list, v)
	}

	return list
}

// inUse is what the running VMs of a host have.
func (d *Datacentre) inUse(host string) (memoryMiB, cores int) {
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

// hardwareChange holds nil where nothing was changed.
type hardwareChange struct {
	PCI      []PCIDevice `json:"pci,omitempty"`
	Firmware *Firmware   `json:"firmware,omitempty"`
}

func (c hardwareChange) of(o HostOptions) HostOptions {
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
	// MovePCI moves a device from one slot to another, both such as "0000:01:00".
	MovePCI [2]string `json:"movePci,omitzero"`
	// GroupWith puts all functions of the first slot into the IOMMU group of the device with the second address.
	GroupWith [2]string `json:"groupWith,omitzero"`
	// RemovePCI takes all functions of a slot out of the host.
	RemovePCI string `json:"removePci,omitempty"`
	// IOMMU switches the IOMMU on or off in the firmware.
	IOMMU *bool `json:"iommu,omitempty"`
}

// ChangeHost changes a host's hardware: from its next boot on, as hardware is changed while a host is off.
func (d *Datacentre) ChangeHost(name string, c HostChange) error {
	if err := d.NeedHost(name); err != nil {
		return err
	}

	defer d.changing()()

	s := d.hostState(name)
	next := s.Hardware

	if s.Pending != nil {
		next = *s.Pending
	}

	list := next.of(*d.host(name)).PCI

	var err error

	if c.MovePCI[0] != "" {
		list, err = moveSlot(list, c.MovePCI[0], c.MovePCI[1])
	}

	if c.GroupWith[0] != "" && err == nil {
		err = joinGroup(list, c.GroupWith[0], c.GroupWith[1])
	}

	if slot := c.RemovePCI; slot != "" && err == nil {
		gone := HostOptions{PCI: list}.pciDevices(slot)
		if list = slices.DeleteFunc(list, func(p PCIDevice) bool { return slices.Contains(gone, p) }); len(gone) == 0 {
			err = fmt.Errorf("slot %s is empty", slot)
		}
	}

	if err != nil {
		return fmt.Errorf("host %s: %w", name, err)
	}

	if next.PCI = list; c.IOMMU != nil {
		firmware := next.of(*d.host(name)).Firmware
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
