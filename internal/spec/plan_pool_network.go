package spec

import (
	"cmp"
	"net/netip"
	"slices"
)

// controlPlaneNetwork returns the network that the control planes share.
func (c Cluster) controlPlaneNetwork() Network {
	if len(c.ControlPlanes) == 0 {
		return c.Network
	}

	return c.NetworkOf(c.ControlPlanes[0])
}

// planPoolNetworks sets the network of each pool of a cluster, control planes first. Networks of a cluster are the same
// or do not overlap, and each machine has a route to the control planes and back.
func (p *planner) planPoolNetworks(path string, pools []*pool, cluster Network) {
	for i, g := range pools {
		g.network = p.planPoolNetwork(g, cluster)

		for _, other := range append([]Network{cluster}, networksOf(pools[:i])...) {
			p.checkDistinct(g.path+".network.cidr", g.network.CIDR, other.CIDR)

			if g.network.IPv6 != nil && other.IPv6 != nil {
				p.checkDistinct(g.path+".network.ipv6.cidr", g.network.IPv6.CIDR, other.IPv6.CIDR)
			}
		}
	}

	controlPlanes := pools[0]
	for _, g := range pools[1:] {
		if g.count > 0 && !g.network.CIDR.Overlaps(controlPlanes.network.CIDR) {
			p.checkRoute(path, g, controlPlanes)
			p.checkRoute(path, controlPlanes, g)
		}
	}
}

// checkDistinct reports a network that is another one of the cluster in part.
func (p *planner) checkDistinct(path string, own, other netip.Prefix) {
	if own.IsValid() && other.IsValid() && own != other && own.Overlaps(other) && !p.problems.Has(path) {
		p.problems.Add(path, own.String(), "overlaps %s, another network of the cluster; choose one that does not, or the same",
			other)
	}
}

func networksOf(pools []*pool) (list []Network) {
	for _, g := range pools {
		list = append(list, g.network)
	}

	return list
}

// planPoolNetwork returns a pool's network: its own, with the cluster's values for keys without one, or the cluster's.
func (p *planner) planPoolNetwork(g *pool, cluster Network) Network {
	c, path := g.Network, g.path+".network"
	if c == nil {
		return cluster
	}

	cidr := cluster.CIDR
	if c.CIDR != "" {
		cidr = p.parseNetwork(path+".cidr", c.CIDR)
	}

	n := p.planNetworkIn(path, g.namePrefix(), Network{CIDR: cidr, IPv6: p.planPoolIPv6(g, cidr, cluster)}, NetworkConfig{
		Gateway: c.Gateway, Bridge: c.Bridge, VLAN: c.VLAN, MTU: c.MTU, DNS: c.DNS, Routes: c.Routes,
	})
	n.NTP, n.NTS, n.DHCP = cluster.NTP, cluster.NTS, cluster.DHCP
	n.SearchDomains, n.StaticHosts = cluster.SearchDomains, cluster.StaticHosts

	if c.Gateway == "" && n.CIDR == cluster.CIDR {
		n.Gateway = cluster.Gateway
	}

	if len(c.Routes) == 0 && n.CIDR == cluster.CIDR {
		n.Routes = cluster.Routes
	}

	if c.Bridge == "" {
		n.Bridge, n.VLAN, n.MTU = cluster.Bridge, cmp.Or(c.VLAN, cluster.VLAN), cmp.Or(c.MTU, cluster.MTU)
	}

	if len(c.DNS) == 0 {
		n.DNS = cluster.DNS
	}

	return n
}

// planPoolIPv6 returns the IPv6 network of a pool with a network of its own: the pool's, or the cluster's beside the
// cluster's IPv4 network. All machines of a cluster have both families, or none has.
func (p *planner) planPoolIPv6(g *pool, cidr netip.Prefix, cluster Network) *IPv6Network {
	own, at := g.Network.IPv6, g.path+".network.ipv6"

	switch {
	case own != nil && cluster.IPv6 == nil:
		p.problems.Add(at, nil, "is set, and the cluster has IPv4 only; set network.ipv6 of the cluster, or remove it")
	case own != nil:
		return p.planIPv6Network(at, g.namePrefix(), own)
	case cidr == cluster.CIDR:
		return cluster.IPv6
	case cluster.IPv6 != nil:
		p.addMissing(at, "is missing: the cluster is dual-stack, and the pool has an IPv4 network of its own; set its "+
			"IPv6 network")
	}

	return nil
}

// checkRoute reports a pool whose machines reach the network of another pool neither through a router nor with an
// additional link or a route. Whether the router lets them is not known here.
func (p *planner) checkRoute(path string, from, to *pool) {
	leads := func(destination netip.Prefix) bool {
		return destination.Bits() <= to.network.CIDR.Bits() && destination.Overlaps(to.network.CIDR)
	}
	connects := func(c LinkConfig) bool {
		return c.CIDR == to.network.CIDR.String() || slices.ContainsFunc(c.Routes, func(r RouteConfig) bool {
			destination, err := netip.ParsePrefix(r.Destination)

			return err == nil && leads(destination)
		})
	}
	routed := func(r Route) bool { return leads(r.Destination) }

	at := path + ".network.gateway"
	if from.Network != nil && from.Network.CIDR != "" {
		at = from.path + ".network.gateway"
	}

	if from.network.DHCP || from.network.Gateway.IsValid() || !from.network.CIDR.IsValid() || !to.network.CIDR.IsValid() ||
		slices.ContainsFunc(from.linkConfigs(), connects) || slices.ContainsFunc(from.network.Routes, routed) ||
		p.problems.Has(at) {
		return
	}

	p.addMissing(at, "is missing, and %s have no route to %s in %s; set the router's address, or add one of extraNICs "+
		"with that cidr", from.path, to.path, to.network.CIDR)
}
