package machine

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
)

// virtioNetwork is the PCI id of a virtio network card.
const virtioNetwork = "1AF4:1000"

func (l *link) busPath() string {
	if l.parent != "" {
		return ""
	}

	return fmt.Sprintf("0000:06:%02x.0", l.index+16)
}

func family(a netip.Addr) nethelpers.Family {
	if a.Is4() {
		return nethelpers.FamilyInet4
	}

	return nethelpers.FamilyInet6
}

// status is the link as a resource.
func (l *link) status() *network.LinkStatus {
	return filled(network.NewLinkStatus(network.NamespaceName, l.name), func(r *network.LinkStatus) {
		s := r.TypedSpec()

		mac, err := net.ParseMAC(l.mac)
		if err == nil {
			s.HardwareAddr, s.PermanentAddr = nethelpers.HardwareAddr(mac), nethelpers.HardwareAddr(mac)
		}

		s.Alias, s.Index, s.MTU, s.Driver, s.BusPath = l.alias, uint32(l.index), uint32(l.mtu), l.driver, l.busPath()
		s.Type, s.OperationalState, s.LinkState = nethelpers.LinkEther, nethelpers.OperStateUp, true
		s.Flags = nethelpers.LinkFlags(nethelpers.LinkUp | nethelpers.LinkBroadcast | nethelpers.LinkRunning | nethelpers.LinkMulticast)

		if l.index == 1 {
			s.Type, s.Flags, s.OperationalState = nethelpers.LinkLoopbck, nethelpers.LinkFlags(nethelpers.LinkUp|nethelpers.LinkLoopback|nethelpers.LinkRunning), nethelpers.OperStateUnknown

			return
		}

		if l.parent != "" {
			s.Kind, s.VLAN.VID = network.LinkKindVLAN, uint16(l.vlan)
		} else {
			s.PCIID, s.AltNames = virtioNetwork, []string{l.altName()}
		}
	})
}

func (m *machine) describeNetwork() []resource.Resource {
	loopback := &link{name: "lo", index: 1, mac: "00:00:00:00:00:00", mtu: 65536}
	list := []resource.Resource{loopback.status(), addressStatus(loopback, netip.MustParsePrefix("127.0.0.1/8"))}

	for _, l := range m.net.links {
		list = append(list, l.status())

		if l.parent == "" && l.index == 2 {
			list = append(list, filled(network.NewHardwareAddr(network.NamespaceName, network.FirstHardwareAddr), func(r *network.HardwareAddr) {
				r.TypedSpec().Name, r.TypedSpec().HardwareAddr = l.name, l.status().TypedSpec().HardwareAddr
			}))
		}

		for _, p := range l.addresses {
			list = append(list, addressStatus(l, p))
		}

		for _, g := range l.gateways {
			list = append(list, filled(network.NewRouteStatus(network.NamespaceName, network.RouteID(nethelpers.TableMain, family(g), netip.Prefix{}, g, network.DefaultRouteMetric, l.name)), func(r *network.RouteStatus) {
				s := r.TypedSpec()
				s.Family, s.Gateway, s.OutLinkName, s.OutLinkIndex = family(g), g, l.name, uint32(l.index)
				s.Table, s.Priority, s.Type, s.Protocol = nethelpers.TableMain, network.DefaultRouteMetric, nethelpers.TypeUnicast, nethelpers.ProtocolStatic
			}))
		}
	}

	for vip := range m.vips {
		if len(m.net.links) > 0 {
			a := netip.MustParseAddr(vip)
			list = append(list, addressStatus(m.net.links[0], netip.PrefixFrom(a, a.BitLen())))
		}
	}

	ready := m.net.node.IsValid()

	list = append(list,
		filled(network.NewResolverStatus(network.NamespaceName, network.ResolverID), func(r *network.ResolverStatus) {
			r.TypedSpec().DNSServers, r.TypedSpec().SearchDomains = m.net.dns, m.net.search
		}),
		filled(network.NewTimeServerStatus(network.NamespaceName, network.TimeServerID), func(r *network.TimeServerStatus) { r.TypedSpec().NTPServers = m.net.ntp }),
		filled(network.NewStatus(network.NamespaceName, network.StatusID), func(r *network.Status) {
			r.TypedSpec().AddressReady, r.TypedSpec().ConnectivityReady, r.TypedSpec().HostnameReady, r.TypedSpec().EtcFilesReady = ready, ready, m.hostname != "", true
		}),
	)

	if m.hostname != "" {
		list = append(list, filled(network.NewHostnameStatus(network.NamespaceName, network.HostnameID), func(r *network.HostnameStatus) { r.TypedSpec().Hostname = m.hostname }))
	}

	return append(list, m.nodeAddresses()...)
}

// nodeAddresses are the address lists: the default one is the first that is no virtual address.
func (m *machine) nodeAddresses() []resource.Resource {
	current := append([]netip.Prefix(nil), m.net.addresses...)

	for vip := range m.vips {
		a := netip.MustParseAddr(vip)
		current = append(current, netip.PrefixFrom(a, a.BitLen()))
	}

	var list []resource.Resource

	for id, addresses := range map[string][]netip.Prefix{
		network.NodeAddressDefaultID: m.net.addresses[:min(1, len(m.net.addresses))], network.NodeAddressCurrentID: current,
		network.NodeAddressRoutedID: m.net.addresses, network.NodeAddressAccumulativeID: current,
	} {
		if len(addresses) > 0 {
			list = append(list, filled(network.NewNodeAddress(network.NamespaceName, id), func(r *network.NodeAddress) { r.TypedSpec().Addresses = addresses }))
		}
	}

	return list
}

func addressStatus(l *link, p netip.Prefix) resource.Resource {
	return filled(network.NewAddressStatus(network.NamespaceName, network.AddressID(l.name, p)), func(r *network.AddressStatus) {
		s := r.TypedSpec()
		s.Address, s.LinkName, s.LinkIndex, s.Family, s.Scope = p, l.name, uint32(l.index), family(p.Addr()), nethelpers.ScopeGlobal

		if l.index == 1 {
			s.Scope = nethelpers.ScopeHost
		}
	})
}
