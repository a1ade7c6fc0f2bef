package spec

import (
	"fmt"
	"net/netip"
	"slices"
)

// planLinks plans the additional network devices, bonds and VLANs of a pool's machines, and the routes over them.
func (p *planner) planLinks(g *pool) {
	p.planNICs(g)
	p.planBonds(g)

	for i, vlans := range p.planVLANs(g.path, g, g.VLANs, g.network.VLAN, g.network.MTU) {
		g.nodes[i].VLANs = vlans
	}

	for j, c := range g.ExtraNICs {
		if c.Bond != "" {
			continue
		}

		for i, vlans := range p.planVLANs(fmt.Sprintf("%s.extraNICs[%d]", g.path, j), g, c.VLANs, c.VLAN, c.MTU) {
			g.nodes[i].ExtraNICs[j].VLANs = vlans
		}
	}

	for j, c := range g.Bonds {
		members := g.members(c.Name)
		if len(members) == 0 {
			continue // which is reported
		}

		tag := g.ExtraNICs[members[0]].VLAN
		for i, vlans := range p.planVLANs(fmt.Sprintf("%s.bonds[%d]", g.path, j), g, c.VLANs, tag, g.bondMTU(c)) {
			g.nodes[i].Bonds[j].VLANs = vlans
		}
	}

	p.checkMetrics(g)
}

// linkConfigs returns the addressing of all additional devices, bonds and VLANs.
func (g *pool) linkConfigs() (list []LinkConfig) {
	add := func(link LinkConfig, vlans []VLANConfig) {
		list = append(list, link)
		for _, vlan := range vlans {
			list = append(list, vlan.LinkConfig)
		}
	}

	add(LinkConfig{}, g.VLANs)

	for _, c := range g.ExtraNICs {
		add(c.LinkConfig, c.VLANs)
	}

	for _, c := range g.Bonds {
		add(c.LinkConfig, c.VLANs)
	}

	return list
}

// planNICs adds the additional network devices to the pool's machines.
func (p *planner) planNICs(g *pool) {
	for j, c := range g.ExtraNICs {
		at := fmt.Sprintf("%s.extraNICs[%d]", g.path, j)
		p.checkFormat(at+".bridge", c.Bridge, bridgeFormat)
		p.checkNIC(at, g, c)

		link := c.LinkConfig
		if c.Bond != "" {
			link = LinkConfig{MTU: c.MTU, DHCP: new(bool)}
		}

		for i, planned := range p.planLink(at, g, link, nil) {
			node := &g.nodes[i]

			nic := NIC{
				Bridge: c.Bridge,
				VLAN:   c.VLAN,
				MTU:    c.MTU,
				MAC:    deriveMAC(p.options.Stack, g.cluster, node.Name, fmt.Sprintf("nic%d", j+1)),

				Address: planned.address, NoAddress: planned.noAddress && c.Bond == "", Bond: c.Bond, RouteMetric: link.RouteMetric,
				Routes: planned.routes,
			}

			if !g.duplicate {
				p.macs.take(nic.MAC, claim{owner: node.Name, group: at, path: at})
			}

			node.ExtraNICs = append(node.ExtraNICs, nic)
		}
	}
}

// checkNIC reports keys that a network device does not take: on plain machines, or in a bond.
func (p *planner) checkNIC(at string, g *pool, c NICConfig) {
	keys := keysWithValues(c)

	if !g.inCluster() {
		for _, key := range keys {
			if slices.Contains([]string{"bond", "routeMetric", "routes", "vlans"}, key) {
				p.problems.Add(at+"."+key, nil, "is for Talos machines; remove it")
			}
		}

		if c.DHCP != nil && !*c.DHCP && c.CIDR == "" {
			p.problems.Add(at+".dhcp", false, "is for Talos machines, whose patches can use the device; remove it, or set cidr")
		}

		return
	}

	if c.Bond == "" {
		return
	}

	names := make([]string, 0, len(g.Bonds))
	for _, bond := range g.Bonds {
		names = append(names, bond.Name)
	}

	if !slices.Contains(names, c.Bond) {
		p.problems.Add(at+".bond", c.Bond, "is not a bond of the pool; %s", suggestName(c.Bond, names, g.path+".bonds"))

		return
	}

	for _, key := range keys {
		if !slices.Contains([]string{"bridge", "vlan", "mtu", "bond"}, key) {
			p.problems.Add(at+"."+key, nil, "is the bond's, and not that of its devices; set it for %s", c.Bond)
		}
	}
}

// plannedLink is the addressing of a device, bond or VLAN of one machine.
type plannedLink struct {
	address   netip.Prefix
	noAddress bool
	routes    []Route
}

// planLink plans the addressing of a device, bond or VLAN of each machine, whose network must not overlap others.
func (p *planner) planLink(at string, g *pool, c LinkConfig, others []namedNetwork) []plannedLink {
	p.checkMTU(at+".mtu", c.MTU)

	if c.DHCP != nil && *c.DHCP && c.CIDR != "" {
		p.problems.Add(at+".dhcp", true, "is set with cidr, which has static addresses; remove one of the two")
	}

	noAddress := c.CIDR == "" && c.DHCP != nil && !*c.DHCP

	if c.RouteMetric != 0 && (noAddress || c.CIDR != "") {
		p.problems.Add(at+".routeMetric", c.RouteMetric, "is for routes that DHCP brings, and there is none; remove it")
	}

	if len(c.Routes) > 0 && noAddress {
		p.problems.Add(at+".routes", nil, "need an address; set cidr, or remove them")
	}

	n, addresses := p.linkAddresses(at, g, c, others)
	routes := p.planRoutes(at+".routes", c.Routes, n.CIDR)

	planned := make([]plannedLink, g.count)
	for i := range planned {
		planned[i] = plannedLink{noAddress: noAddress, routes: slices.Clone(routes)}

		if i < len(addresses) {
			planned[i].address = netip.PrefixFrom(addresses[i], n.CIDR.Bits())
			p.addresses.take(
				addresses[i], claim{owner: g.nodes[i].Name, group: at, path: at + ".firstAddress", count: g.count, net: n},
			)
		}
	}

	return planned
}

// linkAddresses returns the addresses of a device, bond or VLAN; none = DHCP, or none at all.
func (p *planner) linkAddresses(path string, g *pool, c LinkConfig, others []namedNetwork) (Network, []netip.Addr) {
	var n Network

	if c.CIDR == "" {
		if c.FirstAddress != "" {
			p.problems.Add(
				path+".firstAddress", c.FirstAddress, "is set without cidr; set the network, or remove the address for DHCP",
			)
		}

		return n, nil
	}

	n.CIDR = p.parseNetwork(path+".cidr", c.CIDR)
	if !n.CIDR.IsValid() {
		return n, nil
	}

	if g.network.CIDR.IsValid() && n.CIDR.Overlaps(g.network.CIDR) {
		p.problems.Add(
			path+".cidr", c.CIDR, "overlaps the network %s of the first card; choose another network", g.network.CIDR,
		)

		return n, nil
	}

	if i := slices.IndexFunc(others, func(o namedNetwork) bool { return o.Overlaps(n.CIDR) }); i >= 0 {
		p.problems.Add(path+".cidr", c.CIDR, "overlaps %s, %s; choose another network", others[i].path, others[i].Prefix)

		return n, nil
	}

	g.links = append(g.links, namedNetwork{path + ".cidr", n.CIDR})
	all := func(int) bool { return true }

	return n, p.sequenceAddresses(addressSequence{path + ".firstAddress", c.FirstAddress, n, g, all})
}

// planVLANs plans the VLANs on a device or bond, with its tag and MTU, of each machine.
func (p *planner) planVLANs(of string, g *pool, configs []VLANConfig, tag, mtu int) [][]VLAN {
	if len(configs) == 0 {
		return nil
	}

	if tag != 0 {
		p.problems.Add(of+".vlans", nil, "are set, and Proxmox tags the device with VLAN %d, so that it carries no other; "+
			"remove one of the two", tag)
	}

	list := make([][]VLAN, g.count)

	for j, c := range configs {
		at := fmt.Sprintf("%s.vlans[%d]", of, j)

		if slices.ContainsFunc(configs[:j], func(o VLANConfig) bool { return o.ID == c.ID }) {
			p.problems.Add(at+".id", c.ID, "is another VLAN's already; choose another one")
		}

		if mtu != 0 && c.MTU > mtu {
			p.problems.Add(at+".mtu", c.MTU, "is more than the %d of what the VLAN is on; set that or less", mtu)
		}

		for i, planned := range p.planLink(at, g, c.LinkConfig, g.links) {
			list[i] = append(list[i], VLAN{
				ID: c.ID, MTU: c.MTU, Address: planned.address, NoAddress: planned.noAddress, RouteMetric: c.RouteMetric,
				Routes: planned.routes,
			})
		}
	}

	return list
}
