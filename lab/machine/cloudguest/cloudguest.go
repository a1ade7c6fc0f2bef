// Package cloudguest simulates a system other than Talos in a machine: what cloud-init does with the drive that it
// finds, once per instance id, what the commands of a seed do, and what remains on its disk.
package cloudguest

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"talos-proxmox/lab/datacentre"
)

// Guest is the state of a system on its disk.
type Guest struct {
	Hostname string `json:"hostname,omitempty"`
	// User is the login user, with keys and a hashed password.
	User     string   `json:"user,omitempty"`
	Keys     []string `json:"keys,omitempty"`
	Password string   `json:"password,omitempty"`
	// HostKeys counts how often SSH host keys were generated: once per instance.
	HostKeys int `json:"hostKeys,omitempty"`
	// Upgraded is set once cloud-init has upgraded all packages, which Proxmox requests unless ciupgrade is 0.
	Upgraded bool `json:"upgraded,omitempty"`
	// Addresses are the addresses of the network cards by MAC address.
	Addresses map[string]netip.Prefix `json:"addresses,omitempty"`
	// AddressesIPv6 are those of IPv6.
	AddressesIPv6 map[string]netip.Prefix `json:"addressesIPv6,omitempty"`
	// Agent is set if the guest agent is installed.
	Agent bool `json:"agent,omitempty"`
	// Packages were installed in addition to the image's own.
	Packages []string `json:"packages,omitempty"`
	// Files are the files that this package reads or writes by path; Links maps symbolic links to their targets.
	Files map[string]string `json:"files,omitempty"`
	Links map[string]string `json:"links,omitempty"`
}

// Files and folders of a guest.
const (
	machineID    = "/etc/machine-id"
	instanceFile = "/var/lib/cloud/data/instance-id"
	outputLog    = "/var/log/cloud-init-output.log"
	journalDir   = "/var/log/journal/"
	randomSeed   = "/var/lib/systemd/random-seed"
	localtime    = "/etc/localtime"
	zoneinfo     = "/usr/share/zoneinfo/"
)

// World is the environment of a guest.
type World struct {
	// Lease returns the lease of the DHCP server behind a bridge; ok is false if none answers.
	Lease func(bridge, mac string) (address netip.Prefix, ok bool)
	// Unplugged reports whether the guest is cut off from the network.
	Unplugged func() bool
	// LacksPackage reports whether the mirrors lack a package.
	LacksPackage func(name string) bool
	// Read returns the content of a CD.
	Read func(volume string) ([]byte, error)
	// Print writes a line to the serial console.
	Print func(line string)
	// Sleep waits for modelled time; its error is the context's.
	Sleep func(ctx context.Context, d time.Duration) error
	// Boot is the time until cloud-init runs, Install the time to install packages.
	Boot, Install time.Duration
}

// InstanceID returns the instance that cloud-init has set up; empty if none.
func (g Guest) InstanceID() string { return strings.TrimSpace(g.Files[instanceFile]) }

// clone returns a copy that can be modified.
func (g Guest) clone() Guest {
	g.Files, g.Links = maps.Clone(g.Files), maps.Clone(g.Links)
	g.Packages = slices.Clone(g.Packages)

	if g.Files == nil {
		g.Files = map[string]string{}
	}

	if g.Links == nil {
		g.Links = map[string]string{localtime: zoneinfo + "Etc/UTC", "/var/lib/dbus/machine-id": machineID}
	}

	return g
}

// boot writes what a system writes at every boot.
func (g *Guest) boot() {
	if strings.TrimSpace(g.Files[machineID]) == "" {
		g.Files[machineID] = strings.ReplaceAll(uuid.NewString(), "-", "") + "\n"
	}

	g.writeJournal()
}

// writeJournal writes what journald writes while it runs.
func (g *Guest) writeJournal() {
	g.Files[journalDir+strings.TrimSpace(g.Files[machineID])+"/system.journal"] = "a journal"
}

// newInstance does what cloud-init does for every new instance.
func (g *Guest) newInstance(id string) {
	g.Files[instanceFile] = id + "\n"
	g.Files["/var/lib/cloud/instance/boot-finished"] = "finished"
	g.Files["/etc/netplan/50-cloud-init.yaml"] = "network: {version: 2}"
	g.HostKeys++

	for _, kind := range []string{"ecdsa", "ed25519", "rsa"} {
		g.Files["/etc/ssh/ssh_host_"+kind+"_key"] = uuid.NewString()
	}
}

// seesDrive reports whether a cloud image's kernel detects a drive: it has no driver for IDE drives, except with the
// machine type of SeaBIOS, which has a legacy driver.
func seesDrive(drive, firmware string) bool {
	return !strings.HasPrefix(drive, "ide") || firmware != "ovmf"
}

// Run runs a system until it has nothing more to do or, with off, has powered off. The error is the context's. The
// guest agent is installed if the image has it or its package was installed.
func Run(ctx context.Context, os string, agent bool, before Guest, hw datacentre.Hardware, w World) (
	after Guest, off bool, err error,
) {
	after = before.clone()
	after.Agent = after.Agent || agent
	after.boot()

	found, err := findSeed(hw, w.Read, func(drive string) bool { return seesDrive(drive, hw.Firmware) })

	switch {
	case err != nil:
		w.Print("cloud-init: " + err.Error())

		return after, false, nil
	case found != nil:
		return (&build{os: os, guest: after, hw: hw, w: w}).run(ctx, *found)
	default:
		after.applyCloudInit(hw, w)

		return after, false, nil
	}
}

// applyCloudInit does what cloud-init does with the drive that Proxmox writes.
func (g *Guest) applyCloudInit(hw datacentre.Hardware, w World) {
	ci := hw.CloudInit

	switch {
	case ci == nil:
		w.Print("cloud-init: no datasource found: there is no cloud-init drive")

		return
	case !seesDrive(ci.Drive, hw.Firmware):
		w.Print(fmt.Sprintf(
			"cloud-init: no datasource found: the kernel has no driver for a drive at %s; attach it at scsi1", ci.Drive,
		))

		return
	}

	id := instanceID(ci)
	if id == g.InstanceID() {
		w.Print("cloud-init: instance " + id + " is set up already")

		return
	}

	g.newInstance(id)
	g.Hostname, g.User, g.Keys, g.Password = ci.Hostname, ci.User, ci.Keys, ci.Password
	g.Upgraded = g.Upgraded || ci.Upgrade
	g.Addresses, g.AddressesIPv6 = map[string]netip.Prefix{}, map[string]netip.Prefix{}

	for i, card := range ci.Interfaces {
		if card.AddressIPv6.IsValid() {
			g.AddressesIPv6[card.MAC] = card.AddressIPv6
		}

		switch {
		case card.Address.IsValid():
			g.Addresses[card.MAC] = card.Address
		case card.DHCP && i < len(hw.NICs):
			g.lease(hw.NICs[i], w)
		}
	}

	w.Print("cloud-init: instance " + id + " is set up")
}

// lease requests a card's address, and reports whether a server answers. The lab's networks are untagged.
func (g *Guest) lease(card datacentre.NIC, w World) bool {
	address, ok := w.Lease(card.Bridge, card.MAC)
	if !ok || card.VLAN != 0 || w.Unplugged() {
		w.Print("cloud-init: no DHCP server answers " + card.MAC + " on " + card.Bridge)

		return false
	}

	g.Addresses[card.MAC] = address

	return true
}

// instanceID returns Proxmox' instance id: a digest of everything on the drive (qemu-server, nocloud_gen_metadata).
func instanceID(ci *datacentre.CloudInit) string {
	text, _ := json.Marshal(ci) //nolint:errchkjson // plain values

	return fmt.Sprintf("%x", sha256.Sum256(text))[:40]
}

// Address returns the address of the first card; invalid if it has none.
func (g Guest) Address(hw datacentre.Hardware) netip.Addr {
	if len(hw.NICs) == 0 {
		return netip.Addr{}
	}

	return g.Addresses[hw.NICs[0].MAC].Addr()
}

// Interfaces returns what the guest agent reports.
func (g Guest) Interfaces(hw datacentre.Hardware) []datacentre.AgentInterface {
	list := []datacentre.AgentInterface{
		{Name: "lo", MAC: "00:00:00:00:00:00", Addresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/8")}},
	}

	for i, card := range hw.NICs {
		found := datacentre.AgentInterface{Name: fmt.Sprintf("eth%d", i), MAC: card.MAC}
		for _, addresses := range []map[string]netip.Prefix{g.Addresses, g.AddressesIPv6} {
			if address, ok := addresses[card.MAC]; ok {
				found.Addresses = append(found.Addresses, address)
			}
		}

		list = append(list, found)
	}

	return list
}
