package network

import (
	"fmt"
	"net/netip"
	"path"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"
)

// configure applies machine.network.interfaces of a configuration, the only place where the lab's machines read
// addresses.
func (n *Plan) configure(cfg config.Config) {
	for _, d := range cfg.Machine().Network().Devices() {
		links := n.matchingLinks(d)
		if len(links) == 0 {
			n.Warnings = append(n.Warnings, missingDevice(d))
		}

		for _, l := range links {
			n.configureDevice(l, d)
		}
	}

	if len(cfg.NetworkCommonLinkConfigs())+len(cfg.NetworkDHCPv4Configs())+len(cfg.NetworkLinkAliasConfigs())+
		len(cfg.NetworkVirtualIPConfigs()) > 0 {
		n.Warnings = append(n.Warnings, "the lab's machines read addresses from machine.network.interfaces only: "+
			"documents of links, VLANs, aliases, DHCP and virtual addresses have no effect here")
	}
}

// missingDevice returns the message for an interface of the configuration that matches no card: Talos fails for a
// selector, and waits for a name.
func missingDevice(d config.Device) string {
	if s := d.Selector(); s != nil {
		return fmt.Sprintf(
			`controller failed {"component": "controller-runtime", "controller": "network.DeviceConfigController", `+
				`"error": "no matching network device for defined selector: {hardwareAddr: %s, bus: %s, driver: %s}"}`,
			s.HardwareAddress(), s.Bus(), s.KernelDriver(),
		)
	}

	return "no network device matches an interface of the configuration (" + d.Interface() + ")"
}

// matchingLinks returns the links that match an entry of machine.network.interfaces by name or selector.
func (n *Plan) matchingLinks(d config.Device) []*Link {
	var links []*Link

	for _, l := range n.Links {
		if s := d.Selector(); s == nil && l.Name == d.Interface() || s != nil && l.matches(s) {
			links = append(links, l)
		}
	}

	return links
}

func (l *Link) matches(s config.NetworkDeviceSelector) bool {
	ok, err := path.Match(strings.ToLower(s.HardwareAddress()), l.mac)

	return ok && err == nil && (s.Physical() == nil || *s.Physical() != l.vlan)
}

func (n *Plan) configureDevice(l *Link, d config.Device) {
	l.configured, l.ignored = true, d.Ignore()
	if l.ignored {
		return
	}

	l.dhcp = l.dhcp || d.DHCP() && d.DHCPOptions().IPv4()

	addAddresses(l, d.Addresses())

	for _, v := range d.Vlans() {
		vlan := &Link{
			Name: nethelpers.VLANLinkName(l.Name, v.ID()), vlan: true, mac: l.mac, bridge: l.bridge,
			configured: true, dhcp: v.DHCP() && v.DHCPOptions().IPv4(),
		}
		addAddresses(vlan, v.Addresses())

		n.Links = append(n.Links, vlan)
	}
}

func addAddresses(l *Link, addresses []string) {
	for _, text := range addresses {
		if p, err := netip.ParsePrefix(text); err == nil {
			l.addAddress(p)
		} else if a, err := netip.ParseAddr(text); err == nil {
			l.addAddress(netip.PrefixFrom(a, a.BitLen()))
		}
	}
}
