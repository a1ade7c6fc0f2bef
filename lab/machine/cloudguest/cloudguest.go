// Package cloudguest is what cloud-init makes of a machine that runs another system than Talos: it reads the drive that
// Proxmox wrote, once for each instance id, and keeps what it did.
package cloudguest

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"

	"talos-proxmox/lab/datacentre"
)

// Guest is a machine after cloud-init, as its disk keeps it.
type Guest struct {
	InstanceID string `json:"instanceId,omitempty"`
	Hostname   string `json:"hostname,omitempty"`
	// User is who can log in, by these keys and the password's hash.
	User     string   `json:"user,omitempty"`
	Keys     []string `json:"keys,omitempty"`
	Password string   `json:"password,omitempty"`
	// HostKeys counts how often SSH host keys were made: once for each instance.
	HostKeys int `json:"hostKeys,omitempty"`
	// Upgraded says that cloud-init upgraded all packages, as Proxmox asks for unless ciupgrade is 0.
	Upgraded bool `json:"upgraded,omitempty"`
	// Addresses are the cards' own, by MAC address.
	Addresses map[string]netip.Prefix `json:"addresses,omitempty"`
}

// Lease is the answer of the DHCP server behind a bridge; ok is false where none answers.
type Lease func(bridge, mac string) (address netip.Prefix, ok bool)

// sees says whether a cloud image's kernel sees a drive: it has no driver for IDE, which only SeaBIOS' machine type
// has a legacy one for.
func sees(hw datacentre.Hardware) bool {
	return !strings.HasPrefix(hw.CloudInit.Drive, "ide") || hw.Firmware != "ovmf"
}

// Start is the next start of a machine: what cloud-init makes of the drive, and what the console says of it.
func Start(before Guest, hw datacentre.Hardware, lease Lease) (after Guest, console []string) {
	switch {
	case hw.CloudInit == nil:
		return before, []string{"cloud-init: no datasource found: there is no cloud-init drive"}
	case !sees(hw):
		return before, []string{fmt.Sprintf(
			"cloud-init: no datasource found: the kernel has no driver for a drive at %s; attach it at scsi1", hw.CloudInit.Drive,
		)}
	}

	id := instance(hw.CloudInit)
	if id == before.InstanceID {
		return before, []string{"cloud-init: instance " + id + " is set up already"}
	}

	ci := hw.CloudInit
	after = Guest{
		InstanceID: id, Hostname: ci.Hostname, User: ci.User, Keys: ci.Keys, Password: ci.Password,
		HostKeys: before.HostKeys + 1, Upgraded: before.Upgraded || ci.Upgrade, Addresses: map[string]netip.Prefix{},
	}

	for i, card := range ci.Interfaces {
		switch {
		case card.Address.IsValid():
			after.Addresses[card.MAC] = card.Address
		case card.DHCP && i < len(hw.NICs):
			if address, ok := lease(hw.NICs[i].Bridge, card.MAC); ok {
				after.Addresses[card.MAC] = address
			} else {
				console = append(console, "cloud-init: no DHCP server answers "+card.MAC+" on "+hw.NICs[i].Bridge)
			}
		}
	}

	return after, append(console, "cloud-init: instance "+id+" is set up")
}

// instance is Proxmox' instance id: a digest of everything on the drive (qemu-server, nocloud_gen_metadata).
func instance(ci *datacentre.CloudInit) string {
	text, _ := json.Marshal(ci) //nolint:errchkjson // plain values

	return fmt.Sprintf("%x", sha256.Sum256(text))[:40]
}

// Interfaces are what the guest agent tells.
func (g Guest) Interfaces(hw datacentre.Hardware) []datacentre.AgentInterface {
	list := []datacentre.AgentInterface{
		{Name: "lo", MAC: "00:00:00:00:00:00", Addresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/8")}},
	}

	for i, card := range hw.NICs {
		found := datacentre.AgentInterface{Name: fmt.Sprintf("eth%d", i), MAC: card.MAC}
		if address, ok := g.Addresses[card.MAC]; ok {
			found.Addresses = []netip.Prefix{address}
		}

		list = append(list, found)
	}

	return list
}
