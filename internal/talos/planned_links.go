package talos

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"
)

// linkNames returns the names that Linux gives a network card of a VM on Proxmox: of the machine types i440fx and q35,
// and with net.ifnames=0.
func linkNames(card int) []string {
	const firstSlot = 18

	return []string{
		fmt.Sprintf("ens%d", firstSlot+card), fmt.Sprintf("enp6s%d", firstSlot+card), fmt.Sprintf("eth%d", card),
	}
}

// checkLinks returns why a patch conflicts with the links that the program configures, or nil: it makes one of the
// cards a member of a bond or bridge, which then has its addresses twice, sets the VIP on another link as well, or
// defines a bond or VLAN of the stack file.
func checkLinks(c ClusterConfig, n NodeConfig, patch string) error {
	loaded, err := configpatcher.LoadPatch([]byte(patch))
	merge, ok := loaded.(configpatcher.StrategicMergePatch)

	if err != nil || !ok || len(n.Interfaces) == 0 {
		return nil // the validation of the configuration reports it
	}

	var problems []error

	for _, document := range merge.Documents() {
		if v1, ok := document.(*v1alpha1.Config); ok {
			if v1.MachineConfig == nil {
				continue
			}

			for _, device := range v1.MachineConfig.Network().Devices() {
				problems = append(problems, checkDevice(c, n, device))
			}

			continue
		}

		if link, ok := document.(config.NetworkCommonLinkConfig); ok {
			problems = append(problems, checkPlannedLink(n, link.Name()))
		}

		switch document := document.(type) {
		case config.NetworkBondConfig:
			problems = append(problems, checkMembers(n, document.Name(), document.Links(), nil))
		case config.NetworkBridgeConfig:
			problems = append(problems, checkMembers(n, document.Name(), document.Links(), nil))
		case config.NetworkVLANConfig:
			problems = append(problems, checkVLAN(n, n.linksNamed(document.ParentLink()), document.VLANID()))
		case config.NetworkVirtualIPConfig:
			if c.VIP.IsValid() && document.VIP() == c.VIP && !slices.Contains(linkNames(0), document.Link()) {
				problems = append(problems, secondVIP(c))
			}
		}
	}

	return errors.Join(problems...)
}

func checkDevice(c ClusterConfig, n NodeConfig, device config.Device) error {
	name := device.Interface()
	links := n.linksNamed(name)

	if selector := device.Selector(); selector != nil {
		links = nil

		for i, card := range n.Interfaces {
			if selects(selector, card.MAC) {
				links = append(links, i)
			}
		}
	}

	var problems []error

	vip := device.VIPConfig()
	if vip != nil && c.VIP.IsValid() && vip.IP() == c.VIP.String() && !slices.Contains(links, 0) {
		problems = append(problems, secondVIP(c))
	}

	for _, vlan := range device.Vlans() {
		problems = append(problems, checkVLAN(n, links, vlan.ID()))
		if vip := vlan.VIPConfig(); vip != nil && c.VIP.IsValid() && vip.IP() == c.VIP.String() {
			problems = append(problems, secondVIP(c))
		}
	}

	if bond := device.Bond(); bond != nil {
		problems = append(problems, checkPlannedLink(n, name), checkMembers(n, name, bond.Interfaces(), bond.Selectors()))
	}

	if bridge := device.Bridge(); bridge != nil {
		problems = append(problems, checkPlannedLink(n, name), checkMembers(n, name, bridge.Interfaces(), nil))
	}

	return errors.Join(problems...)
}

// linksNamed returns the cards that may have a name, by index, or the bond, whose index follows those of the cards.
func (n NodeConfig) linksNamed(name string) (links []int) {
	for i := range n.Interfaces {
		if slices.Contains(linkNames(i), name) {
			links = append(links, i)
		}
	}

	for i, bond := range n.Bonds {
		if bond.Name == name {
			links = append(links, len(n.Interfaces)+i)
		}
	}

	return links
}

// vlansOf returns the VLANs of a link, by its index.
func (n NodeConfig) vlansOf(link int) []VLAN {
	if link < len(n.Interfaces) {
		return n.Interfaces[link].VLANs
	}

	return n.Bonds[link-len(n.Interfaces)].VLANs
}

// checkVLAN reports a VLAN of the stack file that a patch defines on one of the links.
func checkVLAN(n NodeConfig, links []int, id uint16) error {
	for _, link := range links {
		if slices.ContainsFunc(n.vlansOf(link), func(v VLAN) bool { return v.ID == int(id) }) {
			return fmt.Errorf("it defines VLAN %d of a link, which is one of vlans in the stack file: remove that part, and set it "+
				"there", id)
		}
	}

	return nil
}

// checkPlannedLink reports a link of the stack file that a patch defines by name: a bond, or a VLAN on one.
func checkPlannedLink(n NodeConfig, name string) error {
	for _, bond := range n.Bonds {
		if bond.Name == name || slices.ContainsFunc(bond.VLANs, func(v VLAN) bool {
			return name == nethelpers.VLANLinkName(bond.Name, uint16(v.ID))
		}) {
			return fmt.Errorf("it defines the link %s, which follows from bonds in the stack file: remove that part, and set it there",
				name)
		}
	}

	return nil
}

// checkMembers reports a bond or bridge that cards with addresses or of a bond of the stack file are members of.
func checkMembers(n NodeConfig, name string, links []string, selectors []config.NetworkDeviceSelector) error {
	name = cmp.Or(name, "a bond or bridge")

	for i, card := range n.Interfaces {
		isMember := slices.ContainsFunc(links, func(link string) bool { return slices.Contains(linkNames(i), link) }) ||
			slices.ContainsFunc(selectors, func(s config.NetworkDeviceSelector) bool { return selects(s, card.MAC) })

		switch {
		case !isMember:
		case i == 0:
			return fmt.Errorf("it makes the first network card of the machine, whose addresses the program sets on the card itself, "+
				"a member of %s: use cards of extraNICs in one of bonds, or with dhcp: false, for that", name)
		case card.Bond != "":
			return fmt.Errorf("it makes the card of extraNICs[%d], which is in %s, a member of %s: remove that part", i-1, card.Bond,
				name)
		case card.DHCP || card.Address.IsValid() || len(card.VLANs) > 0:
			return fmt.Errorf("it makes the card of extraNICs[%d], which has addresses or VLANs of its own, a member of %s: put the "+
				"card into one of bonds instead, or set dhcp: false for it", i-1, name)
		}
	}

	return nil
}

func secondVIP(c ClusterConfig) error {
	return fmt.Errorf("it sets the VIP %s on another link, and network.vip sets it on the first network card: remove one of "+
		"the two", c.VIP)
}

// selects reports whether a selector matches a card. Where the card is on the PCI bus is not known.
func selects(s config.NetworkDeviceSelector, mac string) bool {
	mac = strings.ToLower(mac)
	stated := false

	for _, part := range []struct{ pattern, value string }{
		{s.HardwareAddress(), mac}, {s.PermanentAddress(), mac}, {s.KernelDriver(), "virtio_net"}, {s.PCIID(), "1af4:1000"},
	} {
		if part.pattern == "" {
			continue
		}

		stated = true

		if matched, err := path.Match(strings.ToLower(part.pattern), part.value); err != nil || !matched {
			return false
		}
	}

	return s.Bus() == "" && (stated || s.Physical() != nil && *s.Physical())
}
