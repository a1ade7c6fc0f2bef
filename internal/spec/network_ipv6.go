package spec

import (
	"fmt"
	"net/netip"

	"talos-proxmox/internal/talos"
)

// Prefix lengths of IPv6 networks. Each machine gets a /64 for its pods, of which Kubernetes divides a network into at
// most 2^16; the API server accepts at most a /108 for services.
const (
	shortestMachinesIPv6, longestMachinesIPv6 = 48, 120
	shortestPodsIPv6, longestPodsIPv6         = 48, podsOfMachineIPv6
	shortestServicesIPv6, longestServicesIPv6 = 108, 124
	podsOfMachineIPv6                         = 64
)

// parseIPv6Address parses an IPv6 address, and reports an unusable one.
func (p *planner) parseIPv6Address(path, text string) (netip.Addr, bool) {
	if text == "" {
		return netip.Addr{}, false
	}

	address, err := netip.ParseAddr(text)

	switch {
	case err != nil || !address.Is6() || address.Is4In6() || address.Zone() != "":
		p.problems.Add(path, text, "is not an IPv6 address; write it as fd00:1::20")
	case address.IsUnspecified() || address.IsMulticast():
		p.problems.Add(path, text, "cannot be a machine's address; use a unicast address")
	default:
		return address, true
	}

	return netip.Addr{}, false
}

// parseServer parses the address of a server that a network's machines reach: of either family if they have both.
func (p *planner) parseServer(path, text string, n Network) (netip.Addr, bool) {
	if address, err := netip.ParseAddr(text); n.IPv6 != nil && err == nil && address.Is6() {
		return p.parseIPv6Address(path, text)
	}

	return p.parseAddress(path, text)
}

// parseIPv6Network parses an IPv6 network for a purpose, with limits of its prefix length.
func (p *planner) parseIPv6Network(what, path, text string, shortest, longest int) netip.Prefix {
	if text == "" {
		return netip.Prefix{}
	}

	prefix, err := netip.ParsePrefix(text)
	address := prefix.Addr()

	switch {
	case err != nil || !address.Is6() || address.Is4In6():
		p.problems.Add(path, text, "is not an IPv6 network; write it as fd00:1::/64")
	case prefix.Bits() < shortest || prefix.Bits() > longest:
		p.problems.Add(path, text, "has an unsuitable size for %s; set a prefix length from %d to %d", what, shortest, longest)
	case prefix != prefix.Masked():
		p.problems.Add(path, text, "is an address inside a network; write the network as %s", prefix.Masked())
	case address.IsMulticast() || address.IsLinkLocalUnicast() || address.IsUnspecified():
		p.problems.Add(path, text, "is not a network for %s; use one of your provider's, or a private one, such as fd00:1::/64",
			what)
	default:
		return prefix
	}

	return netip.Prefix{}
}

// planIPv6Network plans the IPv6 network beside a machines' IPv4 network; nil = none.
func (p *planner) planIPv6Network(path, owner string, c *IPv6NetworkConfig) *IPv6Network {
	if c == nil {
		return nil
	}

	n := &IPv6Network{
		CIDR: p.parseIPv6Network("machines", path+".cidr", c.CIDR, shortestMachinesIPv6, longestMachinesIPv6),
	}

	gateway, ok := p.parseIPv6Address(path+".gateway", c.Gateway)

	switch {
	case !ok:
	case gateway.IsLinkLocalUnicast():
		n.Gateway = gateway
	case p.checkInside(path+".gateway", gateway, n.CIDR):
		n.Gateway = gateway
		p.addresses.take(gateway, claim{owner: "the IPv6 gateway of " + owner, shared: true})
	}

	return n
}

// planKubernetesIPv6 plans the IPv6 networks of pods and services, which dual-stack clusters have.
func (p *planner) planKubernetesIPv6(path string, c ClusterConfig, cluster *Cluster) {
	for _, network := range []struct {
		what, key, text, fallback string
		shortest, longest         int
		planned                   *netip.Prefix
	}{
		{
			"pods", "podCidrIPv6", c.PodCIDRIPv6, talos.DefaultPodCIDRIPv6, shortestPodsIPv6, longestPodsIPv6,
			&cluster.PodCIDRIPv6,
		},
		{
			"services", "serviceCidrIPv6", c.ServiceCIDRIPv6, talos.DefaultServiceCIDRIPv6, shortestServicesIPv6,
			longestServicesIPv6, &cluster.ServiceCIDRIPv6,
		},
	} {
		at, text := path+"."+network.key, network.text

		switch {
		case cluster.Network.IPv6 == nil && text != "":
			p.problems.Add(at, text, "is set, and the machines have IPv4 only; set network.ipv6, or remove it")

			continue
		case cluster.Network.IPv6 == nil:
			continue
		case text == "":
			text = network.fallback
		}

		*network.planned = p.parseIPv6Network(network.what, at, text, network.shortest, network.longest)
	}
}

// planIPv6Addresses gives each machine the place in the IPv6 network that it has in the IPv4 network, unless its own
// setting is another.
func (p *planner) planIPv6Addresses(g *pool, overrides map[int]nodeOverrides) {
	ipv6 := g.network.IPv6

	for i := range g.nodes {
		n, own := &g.nodes[i], overrides[i].AddressIPv6
		at := fmt.Sprintf("%s.nodes.%d.addressIPv6", g.path, i+1)

		if own != "" {
			at = overrides[i].path + ".addressIPv6"
		}

		switch {
		case ipv6 == nil && own != "":
			p.problems.Add(at, own, "is set, and the pool's machines have IPv4 only; set network.ipv6, or remove it")

			continue
		case ipv6 == nil || !ipv6.CIDR.IsValid():
			continue
		}

		var address netip.Addr

		switch {
		case own != "":
			address, _ = p.parseIPv6Address(at, own)
			if !address.IsValid() || !p.checkInside(at, address, ipv6.CIDR) {
				continue
			}
		case !n.Address.IsValid():
			continue
		default:
			address = AddOffset(ipv6.CIDR.Addr(), AddressOffset(g.network.CIDR.Addr(), n.Address.Addr()))
			if why := addressProblem(address, ipv6.CIDR); why != "" {
				p.problems.Add(at, nil, "is not set, and %s in the place of %s %s; set it, or choose a larger network", address,
					n.Address.Addr(), why)

				return
			}
		}

		n.AddressIPv6 = netip.PrefixFrom(address, ipv6.CIDR.Bits())
		p.addresses.take(address, claim{
			owner: n.Name, group: g.path, path: at, count: 1, net: Network{CIDR: ipv6.CIDR},
		})
	}
}
