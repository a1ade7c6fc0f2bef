package network

import (
	"cmp"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
)

// configure applies machine.network.interfaces of a configuration, the only place where the lab's machines read
// addresses.
func (n *Plan) configure(cfg config.Config) {
	devices := cfg.Machine().Network().Devices()

	for _, d := range devices {
		if d.Bond() != nil && !d.Ignore() {
			n.addBond(d)
		}
	}

	for _, d := range devices {
		links := n.matchingLinks(d)
		if len(links) == 0 && d.Bond() == nil {
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

// matches reports whether a selector matches the link. Where a card is on the bus is not known.
func (l *Link) matches(s config.NetworkDeviceSelector) bool {
	physical, stated := l.kind == "", false

	driver, pciID := "", ""
	if physical {
		driver, pciID = "virtio_net", "1AF4:1000"
	}

	for _, part := range [][2]string{
		{strings.ToLower(s.HardwareAddress()), l.mac},
		{strings.ToLower(s.PermanentAddress()), l.permanent},
		{s.KernelDriver(), driver},
		{s.PCIID(), pciID},
		{s.Bus(), ""},
	} {
		if part[0] == "" {
			continue
		}

		stated = true

		if ok, err := path.Match(part[0], part[1]); !ok || err != nil {
			return false
		}
	}

	if s.Physical() != nil {
		return *s.Physical() == physical
	}

	return stated
}

// addBond adds a bond, whose cards get the MAC of the first. As in Talos, one whose selectors match no card does not
// exist, and one with names has those cards that exist.
func (n *Plan) addBond(d config.Device) {
	bond := &Link{
		Name: d.Interface(), kind: network.LinkKindBond, configured: true, bond: bondSpec(d.Bond()), mtu: mtuOf(d.MTU()),
	}

	for _, l := range n.Links {
		if slices.Contains(d.Bond().Interfaces(), l.Name) || slices.ContainsFunc(d.Bond().Selectors(), l.matches) {
			l.master, l.configured, l.mtu = bond, true, bond.mtu
			bond.mac, bond.bridge = cmp.Or(bond.mac, l.mac), cmp.Or(bond.bridge, l.bridge)
			l.mac = bond.mac
		}
	}

	if bond.mac == "" && len(d.Bond().Selectors()) > 0 {
		n.Warnings = append(n.Warnings, fmt.Sprintf(
			"failed to select interfaces for a bond device: no matching network device for defined bond selectors of %s", bond.Name,
		))

		return
	}

	n.Links = append(n.Links, bond)
}

// bondSpec returns the settings of a bond, which Talos' validation has checked.
func bondSpec(b config.Bond) network.BondMasterSpec {
	mode, _ := nethelpers.BondModeByName(b.Mode())
	policy, _ := nethelpers.BondXmitHashPolicyByName(b.HashPolicy())
	rate, _ := nethelpers.LACPRateByName(b.LACPRate())

	return network.BondMasterSpec{Mode: mode, HashPolicy: policy, LACPRate: rate, MIIMon: b.MIIMon()}
}

func (n *Plan) configureDevice(l *Link, d config.Device) {
	l.configured, l.ignored = true, d.Ignore()
	if l.ignored {
		return
	}

	if d.MTU() != 0 {
		l.mtu = mtuOf(d.MTU())
	}

	n.address(l, d.DHCP(), d.DHCPOptions(), d.Addresses(), d.Routes())

	for _, v := range d.Vlans() {
		vlan := &Link{
			Name: nethelpers.VLANLinkName(l.Name, v.ID()), kind: network.LinkKindVLAN, mac: l.mac, bridge: l.bridge, parent: l,
			vlan: network.VLANSpec{VID: v.ID(), Protocol: nethelpers.VLANProtocol8021Q}, mtu: cmp.Or(v.MTU(), l.mtu),
			configured: true,
		}
		n.address(vlan, v.DHCP(), v.DHCPOptions(), v.Addresses(), v.Routes())

		n.Links = append(n.Links, vlan)
	}
}

// address gives a link its addresses and routes.
func (n *Plan) address(l *Link, dhcp bool, options config.DHCPOptions, addresses []string, routes []config.Route) {
	l.dhcp = l.dhcp || dhcp && options.IPv4()
	l.metric = options.RouteMetric()

	for _, text := range addresses {
		if p, err := netip.ParsePrefix(text); err == nil {
			l.addAddress(p)
		} else if a, err := netip.ParseAddr(text); err == nil {
			l.addAddress(netip.PrefixFrom(a, a.BitLen()))
		}
	}

	for _, r := range routes {
		destination := defaultRoute
		if p, err := netip.ParsePrefix(r.Network()); err == nil {
			destination = p
		}

		if gateway, err := netip.ParseAddr(r.Gateway()); err == nil {
			n.addRoute(Route{destination, gateway, l, cmp.Or(r.Metric(), network.DefaultRouteMetric)})
		}
	}
}

// mtuOf returns an MTU, or that of Ethernet without one. A card with MTU 1 has its bridge's.
func mtuOf(mtu int) uint32 {
	const ethernet = 1500
	if mtu <= 1 {
		return ethernet
	}

	return uint32(mtu)
}
