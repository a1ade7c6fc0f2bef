package spec

import (
	"cmp"
	"fmt"
	"net/netip"
)

// planRoutes plans routes over a link in a network; an invalid network is not known.
func (p *planner) planRoutes(path string, configs []RouteConfig, network netip.Prefix) []Route {
	var routes []Route

	for i, c := range configs {
		at := fmt.Sprintf("%s[%d]", path, i)

		destination, err := netip.ParsePrefix(c.Destination)
		switch {
		case c.Destination == "": // which is reported
		case err != nil:
			p.problems.Add(at+".destination", c.Destination, "is not an IPv4 network; write it as 10.50.0.0/16")
		case destination.Addr().Is6():
			p.problems.Add(at+".destination", c.Destination, "is IPv6, and this needs IPv4 (docs/networking.md#dual-stack); "+
				"set an IPv4 network")
		case destination != destination.Masked():
			p.problems.Add(at+".destination", c.Destination, "is an address inside a network; write the network as %s", destination.Masked())
		case destination.Bits() == 0 && c.Metric == 0:
			p.addMissing(at+".metric", "is missing, and the route is a default route; set it, such as 2048, or 100 to prefer the "+
				"route to the first one")
		}

		gateway, ok := p.parseAddress(at+".gateway", c.Gateway)
		if ok && network.IsValid() {
			p.checkInside(at+".gateway", gateway, network)
		}

		routes = append(routes, Route{destination, gateway, c.Metric})
	}

	return routes
}

// defaultMetric is Talos' metric of routes without one (network.DefaultRouteMetric).
const defaultMetric = 1024

// checkMetrics reports routes to the same network with the same metric, of which Linux accepts one.
func (p *planner) checkMetrics(g *pool) {
	type route struct {
		destination string
		metric      int
	}

	seen := map[route]string{}
	check := func(path string, routes []RouteConfig) {
		for i, c := range routes {
			key, at := route{c.Destination, cmp.Or(c.Metric, defaultMetric)}, fmt.Sprintf("%s.routes[%d]", path, i)
			if other, known := seen[key]; known && c.Destination != "" {
				p.problems.Add(at+".metric", nil, "is %d, as is that of %s, which leads to %s, too; set another one", key.metric, other,
					c.Destination)
			}

			seen[key] = at
		}
	}

	for _, r := range g.network.Routes {
		seen[route{r.Destination.String(), cmp.Or(r.Metric, defaultMetric)}] = "a route of the network"
	}

	withVLANs := func(path string, c LinkConfig, vlans []VLANConfig) {
		check(path, c.Routes)

		for i, vlan := range vlans {
			check(fmt.Sprintf("%s.vlans[%d]", path, i), vlan.Routes)
		}
	}

	withVLANs(g.path, LinkConfig{}, g.VLANs)

	for i, c := range g.ExtraNICs {
		withVLANs(fmt.Sprintf("%s.extraNICs[%d]", g.path, i), c.LinkConfig, c.VLANs)
	}

	for i, c := range g.Bonds {
		withVLANs(fmt.Sprintf("%s.bonds[%d]", g.path, i), c.LinkConfig, c.VLANs)
	}
}
