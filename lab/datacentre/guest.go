package datacentre

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// Guests runs the systems inside the VMs. The data centre calls it without holding its lock, and one call at a time for
// each VM.
type Guests interface {
	// PowerOn is called when a VM has started (at the end of its start task), and for each running VM when a saved data
	// centre is opened. It returns at once.
	PowerOn(vm Hardware)
	// PowerOff is called when a VM stops; the guest has ended when it returns.
	PowerOff(vmid int)
	// Agent returns the interfaces that the VM's QEMU guest agent reports, or false without a running agent.
	Agent(vmid int) ([]AgentInterface, bool)
	// Serial streams a guest's serial console from power-on until the guest is off, the context ends, or line returns
	// an error, which Serial returns. Without a guest it returns at once.
	Serial(ctx context.Context, vmid int, line func(text string) error) error
}

// Hardware is a VM as its guest sees it, at the time of power-on.
type Hardware struct {
	Host      string
	VMID      int
	Name      string
	UUID      string // SMBIOS UUID
	Cores     int
	MemoryMiB int
	NICs      []NIC
	Disks     []GuestDisk
	// Boot lists the bootable volumes (disks and CD-ROM) in the VM's boot order, including blank ones, which the
	// firmware skips.
	Boot []GuestDisk
	// CloudInit is the nocloud data of the cloud-init drive, or nil without a drive.
	CloudInit *CloudInit
	PCI       []PCIDevice // passed-through devices, with their addresses on the host
	USB       []USBDevice // passed-through devices, with their ports on the host
	// Firmware is "seabios" or "ovmf".
	Firmware string
	// EFIVars is the volume of the firmware's variables, TPM that of the TPM's state; empty = none. PreEnrolledKeys
	// reports whether the variables began with the keys of Microsoft.
	EFIVars, TPM    string
	PreEnrolledKeys bool
	// AgentEnabled reports whether the VM has the QEMU agent channel.
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

// CloudInit is the content that Proxmox writes to a cloud-init drive of type nocloud.
type CloudInit struct {
	// Drive is the slot: scsi1, ide2.
	Drive      string
	Hostname   string
	Interfaces []CloudInitInterface // in the order of net0, net1, …
	DNS        []netip.Addr
	Search     []string
	// UserData reports whether there is user data beyond Proxmox' default (user, password, keys or a snippet).
	UserData bool
	// User is created with these keys and this password hash.
	User     string
	Keys     []string
	Password string
	// Upgrade reports whether to upgrade packages, which is the default of ciupgrade.
	Upgrade bool
}

// CloudInitInterface is the nocloud network of one network card.
type CloudInitInterface struct {
	MAC     string
	DHCP    bool
	Address netip.Prefix // invalid with DHCP
	Gateway netip.Addr   // invalid without one
	// AddressIPv6 and GatewayIPv6 are invalid without IPv6.
	AddressIPv6 netip.Prefix `json:",omitzero"`
	GatewayIPv6 netip.Addr   `json:",omitzero"`
}

// AgentInterface is a network interface as the guest agent reports it.
type AgentInterface struct {
	Name      string
	MAC       string
	Addresses []netip.Prefix
}

// passedDevices are the devices of the host that a VM gets at its start.
type passedDevices struct {
	pci []PCIDevice
	usb []USBDevice
}

// hardware returns the hardware for a VM's power-on; it requires the lock.
func (d *Datacentre) hardware(v *vm, devices passedDevices) Hardware {
	c := v.Config
	hw := Hardware{
		Host: v.Host, VMID: v.ID, Name: v.name(), UUID: c.Properties("smbios1")["uuid"],
		Cores: c.CPUs(), MemoryMiB: c.MemoryMiB(), NICs: c.nics(), PCI: devices.pci, USB: devices.usb,
		Firmware:     cmp.Or(c["bios"], "seabios"),
		AgentEnabled: c.Properties("agent").Bool("enabled"),
	}
	slots := map[string]GuestDisk{}

	for _, dr := range c.drives() {
		vol := d.findVolume(v.Host, dr.volume())
		switch {
		case isIndexed(dr.key, "unused") || vol == nil:
			continue
		case isIndexed(dr.key, "efidisk"):
			hw.EFIVars, hw.PreEnrolledKeys = vol.ID, dr.props.Bool("pre-enrolled-keys")

			continue
		case isIndexed(dr.key, "tpmstate"):
			hw.TPM = vol.ID

			continue
		}

		if dr.cloudInit() {
			hw.CloudInit = c.cloudInit(v.name())
			hw.CloudInit.Drive = dr.key

			continue
		}

		slots[dr.key] = GuestDisk{Interface: dr.key, Volume: vol.ID, SizeBytes: vol.SizeBytes, CDROM: dr.cdrom()}
		hw.Disks = append(hw.Disks, slots[dr.key])
	}

	for _, key := range c.BootOrder() {
		if disk, ok := slots[key]; ok {
			hw.Boot = append(hw.Boot, disk)
		}
	}

	return hw
}

// CPUs returns cores times sockets.
func (c Config) CPUs() int { return c.Number("cores", 1) * c.Number("sockets", 1) }

// MemoryMiB returns the memory; PVE's default is 512.
func (c Config) MemoryMiB() int { return c.Properties("memory").Number("current", 512) }

// numbered returns the keys with a prefix in the order of their numbers.
func (c Config) numbered(prefix string) []string {
	keys := slices.DeleteFunc(slices.Collect(maps.Keys(c)), func(k string) bool { return !isIndexed(k, prefix) })
	slices.SortFunc(keys, func(a, b string) int {
		if len(a) != len(b) {
			return len(a) - len(b)
		}

		return strings.Compare(a, b)
	})

	return keys
}

func (c Config) nics() []NIC {
	var list []NIC

	for _, k := range c.numbered("net") {
		if p := c.Properties(k); !p.Bool("link_down") {
			list = append(list, NIC{
				Name: k, Model: p["model"], MAC: strings.ToLower(p["macaddr"]), Bridge: p["bridge"], VLAN: p.Number("tag", 0),
				MTU: p.Number("mtu", 0),
			})
		}
	}

	return list
}

// cloudInit returns what PVE writes to the drive. As in PVE, a network card without ipconfig is not configured.
func (c Config) cloudInit(name string) *CloudInit {
	ci := &CloudInit{Hostname: name, Search: c.List("searchdomain")}

	for _, text := range c.List("nameserver") {
		if a, err := netip.ParseAddr(text); err == nil {
			ci.DNS = append(ci.DNS, a)
		}
	}

	ci.User, ci.Password, ci.Upgrade = c["ciuser"], c["cipassword"], c["ciupgrade"] != "0"
	if keys, err := url.PathUnescape(c["sshkeys"]); err == nil && keys != "" {
		ci.Keys = strings.FieldsFunc(keys, func(r rune) bool { return r == '\n' })
	}

	for _, k := range []string{"ciuser", "cipassword", "sshkeys", "cicustom"} {
		ci.UserData = ci.UserData || c[k] != ""
	}

	for _, n := range c.nics() {
		p := c.Properties("ipconfig" + strings.TrimPrefix(n.Name, "net"))
		nic := CloudInitInterface{MAC: n.MAC, DHCP: p["ip"] == "dhcp"}

		if a, err := netip.ParsePrefix(p["ip"]); err == nil {
			nic.Address = a
		}

		if g, err := netip.ParseAddr(p["gw"]); err == nil {
			nic.Gateway = g
		}

		if a, err := netip.ParsePrefix(p["ip6"]); err == nil {
			nic.AddressIPv6 = a
		}

		if g, err := netip.ParseAddr(p["gw6"]); err == nil {
			nic.GatewayIPv6 = g
		}

		ci.Interfaces = append(ci.Interfaces, nic)
	}

	return ci
}

// Agent returns the interfaces that the QEMU guest agent reports; errors are PVE's own.
func (d *Datacentre) Agent(hostName string, vmid int) ([]AgentInterface, error) {
	defer d.lockRead()()

	v, err := d.lookupVM(hostName, vmid)

	switch {
	case err != nil:
		return nil, err
	case !v.Config.Properties("agent").Bool("enabled"):
		return nil, Refuse("No QEMU guest agent configured")
	case !v.Running:
		return nil, Refuse("VM %d is not running", vmid)
	}

	var (
		list    []AgentInterface
		running bool
	)

	if v.Hardware.AgentEnabled {
		d.withGuest(vmid, func(g Guests) { list, running = g.Agent(vmid) })
	}

	if !running {
		return nil, Refuse("QEMU guest agent is not running")
	}

	return list, nil
}

// withGuest calls into a VM's guest, one call at a time for each VM.
func (d *Datacentre) withGuest(vmid int, call func(Guests)) {
	guests, lock := d.guests, d.lockFor(fmt.Sprintf("guest/%d", vmid))
	if guests == nil {
		return
	}

	_ = d.withoutLock(func() error {
		_ = lock.Acquire(context.Background(), exclusive) // a background context never ends

		defer lock.Release(exclusive)

		call(guests)

		return nil
	})
}

// Serial streams the first serial port of a VM, like a program connected to its socket, until the VM is off, the
// context ends, or line returns an error.
func (d *Datacentre) Serial(ctx context.Context, hostName string, vmid int, line func(text string) error) error {
	v, err := d.GuestVM(hostName, vmid)
	if err != nil || !v.Running || v.Config["serial0"] != "socket" {
		return fmt.Errorf("VM %d has no such socket", vmid)
	}

	guests := withLock(d, func() Guests { return d.guests })
	if guests == nil {
		return nil
	}

	return guests.Serial(ctx, vmid, line)
}
