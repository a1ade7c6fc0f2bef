package components

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/spec"
)

// defaultCPUUnits is Proxmox' default weight. The provider's own default is ten times as high.
const defaultCPUUnits = 100

// Bounds of the weight: the provider's minimum, and the maximum of control groups.
const (
	minCPUUnits = 2
	maxCPUUnits = 10000
)

// minVMID is the lowest VMID that Proxmox accepts.
const minVMID = 100

// Machine is a VM on Proxmox, without its name and address.
type Machine struct {
	// The name of the Proxmox host: pve1.
	Host string `pulumi:"host"`
	// Move a running machine when host changes; otherwise it stays on its host. A machine with a device of its host is
	// replaced instead. Default: false.
	HostPinned bool `pulumi:"hostPinned,optional"`
	// The VMID, from 100 on.
	VMID int `pulumi:"vmid"`
	// The MAC address of the first network device: 02:00:00:00:00:01.
	MAC string `pulumi:"mac"`
	// The VMID of the template that a new machine is cloned from, the output vmid of a GoldenTemplate. Default: none, the
	// machine boots iso.
	Template pulumi.IntInput `pulumi:"template,optional"`
	// Share the template's disk instead of copying it; the machine stays on the template's datastore. Default: false.
	Linked bool `pulumi:"linked,optional"`
	// The volume of the ISO from which a machine without a template installs itself, the output volumeId of a
	// GoldenTemplate.
	ISO pulumi.StringInput `pulumi:"iso,optional"`
	// Whether its image includes the QEMU guest agent (siderolabs/qemu-guest-agent). Default: false.
	Agent bool `pulumi:"agent,optional"`
	// Processor cores. Default: 2.
	Cores int `pulumi:"cores,optional"`
	// Memory in MiB. Default: 4096.
	Memory int `pulumi:"memory,optional"`
	// The system disk in GiB; it can grow, but not shrink. Default: 40.
	DiskSize int `pulumi:"diskSize,optional"`
	// The datastore of the machine's disks. Default: local-lvm.
	Datastore string `pulumi:"datastore,optional"`
	// The processor type in Proxmox; Talos needs x86-64-v2 or better. Default: host.
	CPUType string `pulumi:"cpuType,optional"`
	// The weight of the machine when the host's processors are busy, from 2 to 10000. Default: 100.
	CPUUnits int `pulumi:"cpuUnits,optional"`
	// Show the host's NUMA topology to the machine. Default: false.
	NUMA bool `pulumi:"numa,optional"`
	// The host's cores that the machine runs on, such as 0-7; only root@pam, logged in with a password, may set it.
	// Default: all.
	CPUAffinity string `pulumi:"cpuAffinity,optional"`
	// Back the machine's memory with huge pages of this size in MiB, 2 or 1024; it implies numa, and only root@pam, logged
	// in with a password, may set it. Default: 0, ordinary pages.
	HugepagesMiB int `pulumi:"hugepagesMiB,optional"`
	// Queues of each network device, at most 64. Default: 0, one.
	NICQueues int `pulumi:"nicQueues,optional"`
	// Give the machine a TPM 2.0, whose state is on datastore; it cannot be added or removed later. Default: false.
	TPM bool `pulumi:"tpm,optional"`
	// Start the machine with its host. Default: true.
	OnBoot *bool `pulumi:"onBoot,optional"`
	// Proxmox' high availability of the machine. Default: none.
	HA *HA `pulumi:"ha,optional"`
	// The position in the host's start-up order. Default: 0, none.
	StartupOrder int `pulumi:"startupOrder,optional"`
	// Proxmox tags, sorted. Default: none.
	Tags []string `pulumi:"tags,optional"`
	// The Proxmox resource pool, which must exist. Default: none.
	ResourcePool string `pulumi:"resourcePool,optional"`
	// Additional disks. Default: none.
	ExtraDisks []Disk `pulumi:"extraDisks,optional"`
	// Additional network devices. Default: none.
	ExtraNICs []NIC `pulumi:"extraNics,optional"`
	// Let Proxmox' firewall filter the network devices on which the machine has an address. Without rules and options of
	// the VM it filters nothing. Default: false.
	Firewall bool `json:",omitempty" pulumi:"firewall,optional"`
	// Passed-through devices of the host, in addition to the GPUs of a GPUWorker. Default: none.
	PCIDevices []PCIDevice `pulumi:"pciDevices,optional"`
	// Passed-through USB devices of the host, at most four. Default: none.
	USBDevices []USBDevice `pulumi:"usbDevices,optional"`
	// The output ready of the host's preparation, if the machine has devices of the host: it starts after that. Default:
	// none.
	HostReady pulumi.StringInput `pulumi:"hostReady,optional"`
}

// maxUSBDevices is how many USB devices of a VM the provider reads back; Proxmox has fourteen.
const maxUSBDevices = 4

func (m Machine) withDefaults() Machine {
	setDefault(&m.Cores, 2)
	setDefault(&m.Memory, 4096)
	setDefault(&m.DiskSize, 40)
	setDefault(&m.Datastore, "local-lvm")
	setDefault(&m.CPUType, "host")
	setDefault(&m.CPUUnits, defaultCPUUnits)

	if m.OnBoot == nil {
		m.OnBoot = pulumi.BoolRef(true)
	}

	if m.HA != nil {
		ha := *m.HA
		setDefault(&ha.MaxRestart, 1)
		setDefault(&ha.MaxRelocate, 1)

		if ha.Replication != nil {
			replication := *ha.Replication
			setDefault(&replication.Schedule, spec.ReplicationSchedule)
			ha.Replication = &replication
		}

		m.HA = &ha
	}

	m.NUMA = m.NUMA || m.HugepagesMiB > 0 // Proxmox requires it

	m.ExtraDisks = slices.Clone(m.ExtraDisks)
	for i := range m.ExtraDisks {
		m.ExtraDisks[i] = diskWithDefaults(m.ExtraDisks[i], m.Datastore)
	}

	m.PCIDevices = slices.Clone(m.PCIDevices)
	for i := range m.PCIDevices {
		device := &m.PCIDevices[i]
		for _, flag := range []**bool{&device.PCIe, &device.ROMBar} {
			if *flag == nil {
				*flag = pulumi.BoolRef(true)
			}
		}
	}

	return m
}

func diskWithDefaults(d Disk, datastore string) Disk {
	setDefault(&d.Datastore, datastore)
	setDefault(&d.Cache, spec.DefaultCache)
	setDefault(&d.AIO, spec.DefaultAIO)

	for _, flag := range []**bool{&d.SSD, &d.Discard} {
		if *flag == nil {
			*flag = pulumi.BoolRef(true)
		}
	}

	return d
}

// orZero returns what a pointer points to, or the zero value for nil.
func orZero[T any](pointer *T) (value T) {
	if pointer != nil {
		value = *pointer
	}

	return value
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// hasDevices reports whether the machine has devices of its host, with which it cannot migrate.
func (m Machine) hasDevices() bool { return len(m.PCIDevices)+len(m.USBDevices) > 0 }

// dependsOn has the VM wait for its template or ISO, its host and its mappings.
func (m Machine) dependsOn() pulumi.ResourceOption {
	inputs := []pulumi.Input{m.Template, m.ISO, m.HostReady}
	for _, device := range m.PCIDevices {
		inputs = append(inputs, device.Mapping)
	}

	for _, device := range m.USBDevices {
		inputs = append(inputs, device.Mapping)
	}

	return waitFor(inputs...)
}

// validate checks what is known without outputs of other resources.
func (m Machine) validate(path string, found *problem.List) {
	required(found, path+"host", m.Host, "the Proxmox host, such as pve1")

	if m.VMID < minVMID {
		found.Add(path+"vmid", m.VMID, "is not a VMID; use 100 or higher")
	}

	required(found, path+"mac", m.MAC, "one such as 02:00:00:00:00:01")

	if m.CPUUnits < minCPUUnits || m.CPUUnits > maxCPUUnits {
		found.Add(path+"cpuUnits", m.CPUUnits, "is not a weight; use 2 to 10000")
	}

	for i, disk := range m.ExtraDisks {
		at := fmt.Sprintf("%sextraDisks[%d].", path, i)
		required(found, at+"interface", disk.Interface, "where it is attached, such as virtio1")

		if disk.SizeGiB < 1 {
			found.Add(at+"size", disk.SizeGiB, "is not a size; set it in GiB")
		}

		*found = append(*found, disk.CheckOptions(at)...)
	}

	for i, card := range m.ExtraNICs {
		at := fmt.Sprintf("%sextraNics[%d].", path, i)
		required(found, at+"bridge", card.Bridge, "the Proxmox bridge, such as vmbr1")
		required(found, at+"mac", card.MAC, "one such as 02:00:00:00:00:02")

		if card.NoAddress && card.Address.IsValid() {
			found.Add(at+"noAddress", true, "is set with an address; remove one of the two")
		}
	}

	m.validateHA(path+"ha", found)

	for i, device := range m.PCIDevices {
		if (device.Mapping == nil) == (device.ID == "") {
			found.Add(fmt.Sprintf("%spciDevices[%d]", path, i), nil, "needs either mapping or id; set one of them")
		}
	}

	for i, device := range m.USBDevices {
		if device.Mapping == nil {
			found.Add(fmt.Sprintf("%susbDevices[%d].mapping", path, i), nil, "is missing; set the name of a USB mapping")
		}
	}

	if len(m.USBDevices) > maxUSBDevices {
		found.Add(path+"usbDevices", nil, "are %d devices, and the provider knows %d; remove some", len(m.USBDevices),
			maxUSBDevices)
	}
}

// validateHA refuses what Proxmox could not start on another host.
func (m Machine) validateHA(path string, found *problem.List) {
	if m.HA == nil {
		return
	}

	for key, value := range map[string]int{"maxRestart": m.HA.MaxRestart, "maxRelocate": m.HA.MaxRelocate} {
		if value < 1 || value > spec.MaxHATries {
			found.Add(path+"."+key, value, "is not a number of tries; use 1 to %d", spec.MaxHATries)
		}
	}

	if r := m.HA.Replication; r != nil {
		if len(m.HA.Hosts) < 2 {
			found.Add(path+".replication", nil, "copies disks to other hosts of the machine; set two or more in hosts")
		}

		if !spec.IsCalendarEvent(r.Schedule) {
			found.Add(path+".replication.schedule", r.Schedule, `is no calendar event of Proxmox; use one such as "*/15"`)
		}

		if r.RateMBs < 0 {
			found.Add(path+".replication.rateMBs", r.RateMBs, "is below 0; use 0 for no limit")
		}
	}

	if m.hasDevices() {
		found.Add(path, nil, "is for machines that any host can start, and this one has a device of its host; remove one of the two")
	}
}

// validateOrigin requires either a template or an ISO.
func (m Machine) validateOrigin(path string, found *problem.List) {
	if (m.Template == nil) == (m.ISO == nil) {
		found.Add(path+"template", nil,
			"a machine comes either from a template or from an ISO; set one of template and iso")
	}
}

func networkWithDefaults(n Network) Network {
	setDefault(&n.Bridge, "vmbr0")

	return n
}

// validateIPv6 requires an IPv6 address exactly in an IPv6 network.
func validateIPv6(path string, n Network, address netip.Prefix, found *problem.List) {
	switch {
	case n.IPv6 == nil && address.IsValid():
		found.Add(path, address.String(), "is set, and the network has IPv4 only; set ipv6 of the network, or remove it")
	case n.IPv6 != nil && !address.IsValid():
		found.Add(path, nil, "is missing, and the network has IPv6; set it with its prefix length, such as fd00:1::10/64")
	case n.IPv6 != nil && !n.IPv6.CIDR.Contains(address.Addr()):
		found.Add(path, address.String(), "is outside the network %s; choose one of its addresses", n.IPv6.CIDR)
	}
}

func validateNetwork(n Network, path string, found *problem.List) {
	if n.IPv6 != nil {
		checkNetwork(found, path+"ipv6.cidr", n.IPv6.CIDR)
	}

	for i, server := range n.DNS {
		requiredAddress(found, fmt.Sprintf("%sdns[%d]", path, i), server, "a name server, such as 1.1.1.1")
	}
}
