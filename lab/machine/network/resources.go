package network

import (
	"net"
	"net/netip"
	"slices"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"

	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/machine/resources"
)

// Resources returns the host name, and the addresses of a machine that holds virtual IPs.
func (n *Plan) Resources(hostname string, vips []netip.Addr) []resource.Resource {
	list := slices.Concat(n.nodeAddresses(vips), n.linkStatuses(), n.addressStatuses(vips), n.routeStatuses())

	if hostname != "" {
		list = append(list, resources.WithSpec(
			network.NewHostnameStatus(network.NamespaceName, network.HostnameID),
			func(r *network.HostnameStatus) { r.TypedSpec().Hostname = hostname },
		))
	}

	return list
}

// nodeAddresses returns the address lists. The default one has the first address that is not a virtual IP.
func (n *Plan) nodeAddresses(vips []netip.Addr) []resource.Resource {
	current := append([]netip.Prefix(nil), n.Addresses...)

	for _, a := range vips {
		current = append(current, netip.PrefixFrom(a, a.BitLen()))
	}

	var list []resource.Resource

	for id, addresses := range map[string][]netip.Prefix{
		network.NodeAddressDefaultID: n.Addresses[:min(1, len(n.Addresses))], network.NodeAddressCurrentID: current,
		network.NodeAddressRoutedID: n.Addresses, network.NodeAddressAccumulativeID: current,
	} {
		if len(addresses) > 0 {
			list = append(
				list,
				resources.WithSpec(
					network.NewNodeAddress(network.NamespaceName, id),
					func(r *network.NodeAddress) { r.TypedSpec().Addresses = addresses },
				),
			)
		}
	}

	return list
}

// firstIndex is the index of the first link after lo.
const firstIndex = 2

func (n *Plan) indexOf(l *Link) uint32 {
	return uint32(firstIndex + slices.Index(n.Links, l))
}

func familyOf(address netip.Addr) nethelpers.Family {
	if address.Is6() {
		return nethelpers.FamilyInet6
	}

	return nethelpers.FamilyInet4
}

func (n *Plan) linkStatuses() (list []resource.Resource) {
	for _, l := range n.Links {
		status := network.NewLinkStatus(network.NamespaceName, l.Name)
		list = append(list, resources.WithSpec(status, func(r *network.LinkStatus) {
			spec := r.TypedSpec()
			spec.Index, spec.Type, spec.Kind, spec.MTU = n.indexOf(l), nethelpers.LinkEther, l.kind, l.mtu
			spec.HardwareAddr, spec.PermanentAddr = hardwareAddress(l.mac), hardwareAddress(l.permanent)
			spec.OperationalState, spec.LinkState = nethelpers.OperStateUp, true
			spec.BondMaster, spec.VLAN = l.bond, l.vlan

			if l.kind == "" {
				spec.Driver = "virtio_net"
			}

			if l.master != nil {
				spec.MasterIndex, spec.SlaveKind = n.indexOf(l.master), network.LinkKindBond
			}

			if l.parent != nil {
				spec.LinkIndex = n.indexOf(l.parent)
			}
		}))
	}

	return list
}

func hardwareAddress(text string) nethelpers.HardwareAddr {
	address, _ := net.ParseMAC(text) // a link without one has none

	return nethelpers.HardwareAddr(address)
}

// addressStatuses returns the addresses of links, with virtual ones on the first.
func (n *Plan) addressStatuses(vips []netip.Addr) (list []resource.Resource) {
	for i, l := range n.Links {
		addresses := slices.Clone(l.addresses)

		for _, a := range vips {
			if i == 0 {
				addresses = append(addresses, netip.PrefixFrom(a, a.BitLen()))
			}
		}

		for _, address := range addresses {
			status := network.NewAddressStatus(network.NamespaceName, network.AddressID(l.Name, address))
			list = append(list, resources.WithSpec(status, func(r *network.AddressStatus) {
				spec := r.TypedSpec()
				spec.Address, spec.LinkName, spec.LinkIndex = address, l.Name, n.indexOf(l)
				spec.Family, spec.Scope = familyOf(address.Addr()), nethelpers.ScopeGlobal
			}))
		}
	}

	return list
}

func (n *Plan) routeStatuses() (list []resource.Resource) {
	for _, route := range n.Routes {
		destination := route.Destination
		if destination == defaultRoute {
			destination = netip.Prefix{} // as Talos normalizes it
		}

		family := familyOf(route.Gateway)
		status := network.NewRouteStatus(network.NamespaceName, network.RouteID(
			nethelpers.TableMain, family, destination, route.Gateway, route.Priority, route.Link.Name,
		))
		list = append(list, resources.WithSpec(status, func(r *network.RouteStatus) {
			spec := r.TypedSpec()
			spec.Family, spec.Table, spec.Type = family, nethelpers.TableMain, nethelpers.TypeUnicast
			spec.Destination, spec.Gateway, spec.Priority = destination, route.Gateway, route.Priority
			spec.OutLinkName, spec.OutLinkIndex = route.Link.Name, n.indexOf(route.Link)
			spec.Scope, spec.Protocol = nethelpers.ScopeGlobal, nethelpers.ProtocolStatic
		}))
	}

	return list
}

// AgentInterfaces returns what the QEMU guest agent reports of a machine that holds virtual IPs.
func (n *Plan) AgentInterfaces(vips []netip.Addr) []datacentre.AgentInterface {
	list := []datacentre.AgentInterface{
		{Name: "lo", MAC: "00:00:00:00:00:00", Addresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/8")}},
	}

	for _, l := range n.Links {
		list = append(list, datacentre.AgentInterface{Name: l.Name, MAC: l.mac, Addresses: l.addresses})
	}

	for _, a := range vips {
		if len(list) > 1 {
			list[1].Addresses = append(slices.Clone(list[1].Addresses), netip.PrefixFrom(a, a.BitLen()))
		}
	}

	return list
}
