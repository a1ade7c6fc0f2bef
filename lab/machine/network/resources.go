package network

import (
	"net/netip"
	"slices"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"

	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/machine/resources"
)

// Resources returns the host name, and the addresses of a machine that holds virtual IPs.
func (n *Plan) Resources(hostname string, vips []netip.Addr) []resource.Resource {
	list := n.nodeAddresses(vips)

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
