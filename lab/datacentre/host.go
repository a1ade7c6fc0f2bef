package datacentre

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// HostOptions is the hardware of a Proxmox host and its storages.
type HostOptions struct {
	Name string
	// Address is what the cluster knows the host by.
	Address   netip.Addr
	Cores     int
	CPUModel  string
	MemoryMiB int
	PCI       []PCIDevice
	// Storages are the host's storages; DefaultStorages when empty.
	Storages []StorageOptions
	// Bridges are the host's network bridges; vmbr0 when empty.
	Bridges []string
}

// PCIDevice is a device in a host.
type PCIDevice struct {
	// Address is the full one, "0000:01:00.0".
	Address, Vendor, Device string
	// VendorID, DeviceID, SubsystemVendor, SubsystemDevice are with "0x"; Class is such as "0x030000".
	VendorID, DeviceID, SubsystemVendor, SubsystemDevice, Class string
	// IOMMUGroup is -1 where the IOMMU is off.
	IOMMUGroup int
}

// Host is a host as the cluster sees it.
type Host struct {
	HostOptions
	// ID is the host's number in the cluster, from 1.
	ID     int
	Online bool
	// MemoryUsedMiB and CoresUsed are those of its running VMs.
	MemoryUsedMiB, CoresUsed int
}

type host struct {
	HostOptions
	id       int
	storages []*storage
}

func (d *Datacentre) addHosts(list []HostOptions) error {
	for i, o := range list {
		if o.Name == "" || d.host(o.Name) != nil {
			return fmt.Errorf("host %d: name %q is empty or taken: give every host a name of its own", i, o.Name)
		}

		o = hostDefaults(o)
		h := &host{HostOptions: o, id: i + 1}

		for _, s := range o.Storages {
			h.storages = append(h.storages, &storage{StorageOptions: s, host: o.Name})
		}

		d.hosts = append(d.hosts, h)
	}

	return nil
}

func hostDefaults(o HostOptions) HostOptions {
	if o.Cores == 0 {
		o.Cores = 16
	}

	if o.CPUModel == "" {
		o.CPUModel = "AMD EPYC 4464P 12-Core Processor"
	}

	if o.MemoryMiB == 0 {
		o.MemoryMiB = 64 * 1024
	}

	if len(o.Storages) == 0 {
		o.Storages = DefaultStorages()
	}

	if len(o.Bridges) == 0 {
		o.Bridges = []string{"vmbr0"}
	}

	return o
}

// host returns nil for an unknown name.
func (d *Datacentre) host(name string) *host {
	for _, h := range d.hosts {
		if h.Name == name {
			return h
		}
	}

	return nil
}

func (d *Datacentre) needHost(name string) error {
	if d.host(name) != nil {
		return nil
	}

	return refuse("hostname lookup '%s' failed - failed to get address info for: %s: Name or service not known", name, name)
}

// Hosts returns the hosts in the order they were given.
func (d *Datacentre) Hosts() []Host {
	d.mu.Lock()
	defer d.mu.Unlock()

	list := make([]Host, 0, len(d.hosts))

	for _, h := range d.hosts {
		v := Host{HostOptions: h.HostOptions, ID: h.id, Online: !d.faults.offline(h.Name)}

		for _, vm := range d.state.VMs {
			if vm.Host == h.Name && vm.Running && vm.Hardware != nil {
				v.MemoryUsedMiB += vm.Hardware.MemoryMiB
				v.CoresUsed += vm.Hardware.Cores
			}
		}

		list = append(list, v)
	}

	return list
}

// Host returns one host.
func (d *Datacentre) Host(name string) (Host, bool) {
	list := d.Hosts()
	i := slices.IndexFunc(list, func(h Host) bool { return h.Name == name })

	if i < 0 {
		return Host{}, false
	}

	return list[i], true
}

// pciDevices returns the functions a PCI id such as "01:00", "0000:01:00.0" or "01:00.0" names.
func (h *host) pciDevices(id string) []PCIDevice {
	if strings.Count(id, ":") == 1 {
		id = "0000:" + id
	}

	var list []PCIDevice

	for _, p := range h.PCI {
		if p.Address == id || (!strings.Contains(id, ".") && strings.HasPrefix(p.Address, id+".")) {
			list = append(list, p)
		}
	}

	return list
}
