package report

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"

	"talos-proxmox/internal/spec"
)

// cardsOf describes the network devices of a machine, each with its bridge, VLAN and address, then its bonds and the
// VLANs that it tags itself: vmbr0: 10.0.0.10/24, vmbr1, VLAN 20: DHCP.
func cardsOf(n spec.Member) []string {
	address := "DHCP"

	switch {
	case n.Address.IsValid() && n.Network.DHCP:
		address = n.Address.String() + " by DHCP"
	case n.Address.IsValid():
		address = n.Address.String()
	}

	if n.AddressIPv6.IsValid() {
		address += ", " + n.AddressIPv6.String()
	}

	list := append([]string{onBridge(n.Network.Bridge, n.Network.VLAN) + ": " + address}, vlansOn("", n.VLANs)...)

	for _, card := range n.ExtraNICs {
		device := onBridge(card.Bridge, card.VLAN)
		list = append(list, device+": "+cmp.Or(card.Bond, addressOf(card.Address, card.NoAddress)))
		list = append(list, vlansOn(device, card.VLANs)...)
	}

	for _, bond := range n.Bonds {
		list = append(list, fmt.Sprintf("%s (%s): %s", bond.Name, bond.Mode, addressOf(bond.Address, bond.NoAddress)))
		list = append(list, vlansOn(bond.Name, bond.VLANs)...)
	}

	return list
}

func onBridge(bridge string, vlan int) string {
	if vlan == 0 {
		return bridge
	}

	return fmt.Sprintf("%s, VLAN %d", bridge, vlan)
}

// vlansOn describes VLANs that a machine tags on a device; empty = the first one.
func vlansOn(device string, vlans []spec.VLAN) (list []string) {
	for _, vlan := range vlans {
		on := ""
		if device != "" {
			on = " on " + device
		}

		list = append(list, fmt.Sprintf("VLAN %d%s: %s", vlan.ID, on, addressOf(vlan.Address, vlan.NoAddress)))
	}

	return list
}

func addressOf(address netip.Prefix, none bool) string {
	switch {
	case none:
		return "no address"
	case address.IsValid():
		return address.String()
	default:
		return "DHCP"
	}
}

// describeDisk describes a disk: 40 GiB local-zfs.
func describeDisk(d spec.Disk, datastore string) string {
	words := []string{fmt.Sprintf("%d GiB", d.SizeGiB), cmp.Or(d.Datastore, datastore)}
	if d.Volume != "" {
		words = append(words, "(volume "+d.Volume+")")
	}

	return strings.Join(words, " ")
}
