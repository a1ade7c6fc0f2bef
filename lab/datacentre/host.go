package datacentre

import (
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

func (d *Datacentre) needHost(name string) error {
	if d.host(name) != nil {
		return nil
	}

	return Refuse(
		"hostname lookup '%s' failed - failed to get address info for: %s: Name or service not known", name, name,
	)
}

// Hosts returns the hosts in the order they were given.
func (d *Datacentre) Hosts() []Host {
	d.mu.Mutex.Lock()
	defer d.mu.Mutex.Unlock()

	list := make([]Host, 0, len(d.hosts))

	for _, h := range d.hosts {
		v := d.hostView(h)

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
