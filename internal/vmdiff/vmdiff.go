// Package vmdiff compares a plan with the machines in the stack's state, before any resource is registered: a plan
// depends on the stack file alone and cannot know what runs.
package vmdiff

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"talos-proxmox/internal/ownership"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/talos"
)

// Machine is a VM of the stack, in the state or in the plan.
type Machine struct {
	Name, Host   string
	Cluster      string // empty = a plain machine
	ControlPlane bool
	// CannotLeave says why its node could not leave its cluster before the VM is deleted; empty = it can. Departed reports
	// whether it has left already.
	CannotLeave string
	Departed    bool
	VMID        int

	// Fields are the values of [Fields], by their properties.
	Fields map[string]any
	Tags   []string // sorted

	Address string // without its prefix length; empty = by DHCP
	Prefix  int    // of the address
	Gateway string
	DNS     []string
	// AddressIPv6 has its prefix length; it and GatewayIPv6 are empty without.
	AddressIPv6, GatewayIPv6 string

	// SearchDomain and More, the addresses (or dhcp) of additional cards, are those of plain machines.
	SearchDomain   string
	ExtraAddresses []string
	// Password reports whether cloud-init has a password for the user.
	Password bool

	Cards []Card
	// Disks are in the order of the stack file, the system disk first.
	Disks   []Disk
	Devices []Device
	HasGPUs bool // it is planned with GPUs of NVIDIA
	Linked  bool // a linked clone
	// Talos and Schematic are those that it runs or is planned to run; empty = unknown. AllowDowngrade permits an older
	// planned Talos.
	Talos, Schematic string
	AllowDowngrade   bool
	// HasCSI reports whether the Proxmox CSI plugin attaches volumes to it, at the first free of scsi1 to scsi29.
	HasCSI bool
	ISO    bool // boots the ISO if its disk does not boot
	TPM    bool
	// SecureBoot reports whether its system is signed, Volumes are those of its machine configuration, with their keys;
	// nil = unknown.
	SecureBoot *bool
	Volumes    talos.Volumes
}

// Card is a network card.
type Card struct {
	Bridge, MAC string
	VLAN, MTU   int // 0 = none
	Queues      int // 0 = one
	Firewall    bool
}

// Disk is a disk at its interface.
type Disk struct {
	Interface, Datastore string
	SizeGiB              int
	Shared               bool   // a linked clone's volume that depends on its template's, as on ZFS and directories
	Volume               string // the name of the volume that it is, which outlives the machine; empty = it is none
	Options              DiskOptions
}

// Device is a device of its host that the machine has: a USB device by mapping, a PCI device by mapping or by address.
type Device struct {
	Mapping, PCI string
	USB          bool
}

// vmProperties are the compared properties of a VM's resource besides [Fields].
type vmProperties struct {
	Name           string
	VMID           int
	NodeName       string
	Tags           []string
	Clone          struct{ Full *bool }
	BootOrders     []string
	NetworkDevices []struct {
		Bridge, MACAddress string
		VLANID, MTU        int
		Queues             int
		Firewall           bool
	}
	Disks []struct {
		Interface, DatastoreID, PathInDatastore string
		Size                                    int
		DiskOptions
	}
	HostPCIs       []struct{ Mapping, ID string }
	USBs           []struct{ Mapping string }
	TPMState       *struct{ Version string }
	Initialization struct {
		DNS struct {
			Servers []string
			Domain  string
		}
		IPConfigs []struct {
			IPv4, IPv6 struct{ Address, Gateway string }
		}
		UserAccount struct{ Password json.RawMessage }
	}
}

// FromState returns the machine of a VM's resource, from its outputs or inputs. If it returns an error, the machine
// still has everything that could be read.
func FromState(resource map[string]any) (Machine, error) {
	var vm vmProperties

	text, err := json.Marshal(resource)
	if err == nil {
		err = json.Unmarshal(text, &vm)
	}

	if err != nil {
		err = fmt.Errorf("unable to read a VM of the stack's state: %w", err)
	}

	m := Machine{
		Name: vm.Name, Host: vm.NodeName, VMID: vm.VMID, Fields: map[string]any{},
		Tags: slices.Sorted(slices.Values(vm.Tags)), DNS: vm.Initialization.DNS.Servers,
		Linked: vm.Clone.Full != nil && !*vm.Clone.Full, ISO: len(vm.BootOrders) > 1,
		TPM: vm.TPMState != nil,
	}
	for _, f := range Fields {
		value, fieldErr := f.valueIn(resource)
		if m.Fields[f.Property] = value; err == nil && fieldErr != nil {
			err = fmt.Errorf("unable to read %s of VM %d in the stack's state: %w", f.Property, vm.VMID, fieldErr)
		}
	}

	for _, tag := range vm.Tags {
		m.ControlPlane = m.ControlPlane || tag == string(spec.RoleControlPlane)
		if cluster, found := strings.CutPrefix(tag, "cluster-"); found {
			m.Cluster = cluster
		}
	}

	for _, card := range vm.NetworkDevices {
		m.Cards = append(m.Cards, Card{
			Bridge: card.Bridge, MAC: strings.ToLower(card.MACAddress), VLAN: card.VLANID, MTU: card.MTU, Queues: card.Queues,
			Firewall: card.Firewall,
		})
	}

	for _, disk := range vm.Disks {
		if disk.Interface == "" {
			continue // what a refresh leaves of a manually detached disk
		}

		volume, outlives := ownership.VolumeOf(disk.PathInDatastore)
		m.Disks = append(m.Disks, Disk{
			Interface: disk.Interface,
			Datastore: disk.DatastoreID,
			SizeGiB:   disk.Size,
			Shared:    !outlives && isSharedVolume(disk.PathInDatastore, vm.VMID),
			Volume:    volume.Name,
			Options:   disk.DiskOptions,
		})
	}

	for _, device := range vm.HostPCIs {
		m.Devices = append(m.Devices, Device{Mapping: device.Mapping, PCI: device.ID})
	}

	for _, device := range vm.USBs {
		m.Devices = append(m.Devices, Device{Mapping: device.Mapping, USB: true})
	}

	m.SearchDomain = vm.Initialization.DNS.Domain
	// A secret one is null here, and one that was read back is asterisks.
	m.Password = len(vm.Initialization.UserAccount.Password) > 0 && string(vm.Initialization.UserAccount.Password) != `""`

	for i, config := range vm.Initialization.IPConfigs {
		if i > 0 {
			m.ExtraAddresses = append(m.ExtraAddresses, config.IPv4.Address)
		}
	}

	if configs := vm.Initialization.IPConfigs; len(configs) > 0 {
		m.AddressIPv6, m.GatewayIPv6 = configs[0].IPv6.Address, configs[0].IPv6.Gateway
	}

	if configs := vm.Initialization.IPConfigs; len(configs) > 0 && configs[0].IPv4.Address != "dhcp" {
		var prefix string

		m.Address, prefix, _ = strings.Cut(configs[0].IPv4.Address, "/")
		m.Gateway = configs[0].IPv4.Gateway
		_, _ = fmt.Sscan(prefix, &m.Prefix)
	}

	return m, err
}

// volumes returns the names of the machine's volumes that outlive it, in the order of the stack file.
func (m Machine) volumes() (names []string) {
	for _, d := range m.Disks {
		if d.Volume != "" {
			names = append(names, d.Volume)
		}
	}

	return names
}

// isSharedVolume reports whether a volume does not belong to the VM alone, by its name, as the provider decides it.
func isSharedVolume(path string, vmid int) bool {
	own := fmt.Sprintf("vm-%d-", vmid)

	return path != "" && !strings.HasPrefix(path, own) && !strings.HasPrefix(path, fmt.Sprintf("%d/%s", vmid, own))
}

// FromPlan returns a planned machine.
func FromPlan(planned spec.Member) Machine {
	n, network := planned.Node, planned.Network
	m := Machine{
		Name: n.Name, Host: n.Host, VMID: n.VMID, Fields: map[string]any{},
		Cluster: n.Cluster, ControlPlane: n.Role == spec.RoleControlPlane,
		Tags: n.Tags, Linked: n.Linked, ISO: n.Template.Source == spec.SourceISO,
		Talos: n.Template.Version, Schematic: n.Template.Schematic, TPM: n.TPM, SecureBoot: &n.Template.SecureBoot,
		Cards: []Card{{
			Bridge: network.Bridge, MAC: n.MAC, VLAN: network.VLAN, MTU: network.MTU, Queues: n.NICQueues,
			Firewall: n.Firewall,
		}},
	}

	if c := planned.Of; c != nil {
		m.AllowDowngrade, m.HasCSI = c.Upgrade.AllowDowngrade, c.Proxmox != nil && c.Proxmox.CSI != nil
		m.Volumes, _ = n.Volumes(c.Patches) // the error is that of a patch, which was refused
	}

	for _, f := range Fields {
		m.Fields[f.Property] = f.planned(n.VM)
	}

	for _, server := range network.DNS {
		m.DNS = append(m.DNS, server.String())
	}

	if !network.DHCP {
		m.Address, m.Prefix = n.Address.Addr().String(), n.Address.Bits()
		if network.Gateway.IsValid() {
			m.Gateway = network.Gateway.String()
		}
	}

	if n.AddressIPv6.IsValid() {
		m.AddressIPv6 = n.AddressIPv6.String()
		if network.IPv6.Gateway.IsValid() {
			m.GatewayIPv6 = network.IPv6.Gateway.String()
		}
	}

	for _, card := range n.ExtraNICs {
		m.Cards = append(m.Cards, Card{
			Bridge: card.Bridge, MAC: card.MAC, VLAN: card.VLAN, MTU: card.MTU, Queues: n.NICQueues,
			Firewall: n.Firewall && card.HasAddress(),
		})
	}

	for _, disk := range n.Disks() {
		m.Disks = append(m.Disks, Disk{
			Interface: disk.Interface, Datastore: disk.Datastore, SizeGiB: disk.SizeGiB, Volume: disk.Volume,
			Options: plannedOptions(disk),
		})
	}

	m.HasGPUs = len(n.GPUs) > 0

	for _, device := range slices.Concat(n.Devices, n.GPUs) { // a VM's hostpci and usb in this order
		if device.Raw {
			m.Devices = append(m.Devices, Device{PCI: device.PCI})
		} else {
			m.Devices = append(m.Devices, Device{Mapping: device.Name, USB: device.Kind == spec.USBDevice})
		}
	}

	if planned.Machine != nil {
		m.addCloudInit(*planned.Machine)
	}

	return m
}

// addCloudInit adds the cloud-init settings of a plain machine.
func (m *Machine) addCloudInit(planned spec.Machine) {
	m.SearchDomain, m.Password = planned.SearchDomain, planned.Password != ""

	for _, card := range planned.ExtraNICs {
		address := "dhcp"
		if card.Address.IsValid() {
			address = card.Address.String()
		}

		m.ExtraAddresses = append(m.ExtraAddresses, address)
	}
}
