package datacentre

import (
	"context"
	"net/netip"
)

// Guests is what runs inside the VMs. The datacentre calls it without holding its own lock, and never twice at
// once for the same VM.
type Guests interface {
	// PowerOn is called when a VM has started (at the end of its start task), and for every running VM when a saved
	// datacentre is opened again. It returns at once.
	PowerOn(vm Hardware)
	// PowerOff is called when a VM stops; the guest is gone when it returns. With graceful, the guest got the ACPI signal
	// first.
	PowerOff(vmid int)
	// Agent answers what the QEMU guest agent of the VM would report; false where none runs.
	Agent(vmid int) ([]AgentInterface, bool)
	// Serial follows a guest's serial console, from its power-on until the guest is off, the context ends, or
	// line returns an error, which it returns. Without a guest it returns at once.
	Serial(ctx context.Context, vmid int, line func(text string) error) error
}

// Hardware is a VM seen from inside, as it was when it was switched on.
type Hardware struct {
	Host      string
	VMID      int
	Name      string
	UUID      string // SMBIOS UUID
	Cores     int
	MemoryMiB int
	NICs      []NIC
	Disks     []GuestDisk
	// Boot lists the volumes that can be booted, in the VM's boot order (disks and CD-ROM); blank ones included, which the
	// firmware skips.
	Boot []GuestDisk
	// CloudInit is the nocloud data of a cloud-init drive, nil without one.
	CloudInit *CloudInit
	PCI       []PCIDevice // passed-through devices, with their addresses on the host
	// Firmware is "seabios" or "ovmf".
	Firmware string
	// AgentEnabled says that the VM's QEMU agent channel is there.
	AgentEnabled bool
}

// NIC is a network card of a VM.
type NIC struct {
	Name   string // "net0"
	Model  string // "virtio"
	MAC    string // lower case, colons
	Bridge string
	VLAN   int
	MTU    int
}

// GuestDisk is a disk or CD-ROM of a VM.
type GuestDisk struct {
	Interface string // "scsi0", "ide2"
	Volume    string // "local-lvm:vm-100-disk-0"
	SizeBytes int64
	CDROM     bool
}

// CloudInit is what Proxmox writes on the cloud-init drive of type nocloud.
type CloudInit struct {
	// Drive is where it is attached: scsi1, ide2.
	Drive      string
	Hostname   string
	Interfaces []CloudInitInterface // in the order of net0, net1, …
	DNS        []netip.Addr
	Search     []string
	// UserData says that user data beyond Proxmox' own default was given (user, password, keys or a snippet).
	UserData bool
	// User is made, with these keys and the hash of a password.
	User     string
	Keys     []string
	Password string
	// Upgrade says that packages are to be upgraded, as they are unless ciupgrade is 0.
	Upgrade bool
}

// CloudInitInterface is the nocloud network of one card.
type CloudInitInterface struct {
	MAC     string
	DHCP    bool
	Address netip.Prefix // invalid with DHCP
	Gateway netip.Addr   // invalid without one
}

// AgentInterface is an interface as the guest agent reports it.
type AgentInterface struct {
	Name      string
	MAC       string
	Addresses []netip.Prefix
}
