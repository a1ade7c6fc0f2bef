package components

import (
	"fmt"
	"net/netip"
	"slices"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/talos"
)

// validateBonds checks that each bond has devices, which have no addresses of their own.
func (n ClusterNode) validateBonds(path string, found *problem.List) {
	for i, card := range n.Machine.ExtraNICs {
		at := fmt.Sprintf("%smachine.extraNics[%d].bond", path, i)

		switch {
		case card.Bond == "":
		case !slices.ContainsFunc(n.Bonds, func(b Bond) bool { return b.Name == card.Bond }):
			found.Add(at, card.Bond, "is not one of the node's bonds; set the name of one")
		case card.Address.IsValid() || len(card.Routes)+len(card.VLANs) > 0:
			found.Add(at, card.Bond, "is set with an address, routes or VLANs; set these for the bond")
		}
	}

	for i, bond := range n.Bonds {
		at := fmt.Sprintf("%sbonds[%d].", path, i)
		required(found, at+"name", bond.Name, "one such as bond0")
		required(found, at+"mode", bond.Mode, "one such as active-backup")

		if !slices.ContainsFunc(n.Machine.ExtraNICs, func(card NIC) bool { return card.Bond == bond.Name }) {
			found.Add(at+"name", bond.Name, "is the bond of no device; set bond for some of the machine's extraNics")
		}
	}
}

// interfaceConfigs returns a node's network cards. VLANs that Proxmox tags are invisible to the machine.
func interfaceConfigs(n ClusterNode, network Network) []talos.Interface {
	first := talos.Interface{
		MAC: n.Machine.MAC, VLANs: vlanConfigs(n.VLANs),
		Link: talos.Link{
			DHCP: network.DHCP, Address: n.Address, AddressIPv6: n.AddressIPv6, GatewayIPv6: orZero(network.IPv6).Gateway,
			Routes: routeConfigs(network.Routes), MTU: network.MTU,
		},
	}
	if !network.DHCP {
		first.Gateway = network.Gateway
	}

	interfaces := []talos.Interface{first}

	for _, card := range n.Machine.ExtraNICs {
		interfaces = append(interfaces, talos.Interface{
			MAC: card.MAC, Bond: card.Bond, VLANs: vlanConfigs(card.VLANs),
			Link: linkConfig(card.Address, card.NoAddress, card.RouteMetric, card.Routes, card.MTU),
		})
	}

	return interfaces
}

func bondConfigs(bonds []Bond) []talos.Bond {
	list := make([]talos.Bond, 0, len(bonds))
	for _, bond := range bonds {
		list = append(list, talos.Bond{
			Name: bond.Name, Mode: bond.Mode, MIIMon: bond.MIIMon, XmitHashPolicy: bond.XmitHashPolicy, LACPRate: bond.LACPRate,
			Link:  linkConfig(bond.Address, bond.NoAddress, bond.RouteMetric, bond.Routes, bond.MTU),
			VLANs: vlanConfigs(bond.VLANs),
		})
	}

	return list
}

func vlanConfigs(vlans []VLAN) []talos.VLAN {
	list := make([]talos.VLAN, 0, len(vlans))
	for _, vlan := range vlans {
		list = append(list, talos.VLAN{
			ID: vlan.ID, Link: linkConfig(vlan.Address, vlan.NoAddress, vlan.RouteMetric, vlan.Routes, vlan.MTU),
		})
	}

	return list
}

// linkConfig returns the addressing of an additional card, a bond or a VLAN.
func linkConfig(address netip.Prefix, noAddress bool, metric int, routes []Route, mtu int) talos.Link {
	return talos.Link{
		DHCP: !address.IsValid() && !noAddress, Address: address, RouteMetric: metric, Routes: routeConfigs(routes), MTU: mtu,
	}
}

func routeConfigs(routes []Route) []talos.Route {
	list := make([]talos.Route, 0, len(routes))
	for _, route := range routes {
		list = append(list, talos.Route(route))
	}

	return list
}

func staticHosts(hosts []StaticHost) []talos.StaticHost {
	list := make([]talos.StaticHost, 0, len(hosts))
	for _, host := range hosts {
		list = append(list, talos.StaticHost(host))
	}

	return list
}
