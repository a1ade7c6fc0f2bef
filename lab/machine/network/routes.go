package network

import (
	"net/netip"
	"slices"
)

// Route is a route over a link.
type Route struct {
	Destination netip.Prefix
	Gateway     netip.Addr
	Link        *Link
	Priority    uint32
}

var defaultRoute = netip.PrefixFrom(netip.IPv4Unspecified(), 0)

// addRoute adds a route, unless the platform or the configuration has the same already.
func (n *Plan) addRoute(r Route) {
	if !slices.Contains(n.Routes, r) {
		n.Routes = append(n.Routes, r)
	}
}

// dropUnreachable removes the routes that Linux refuses: those to a gateway in none of the link's networks.
func (n *Plan) dropUnreachable() {
	n.Routes = slices.DeleteFunc(n.Routes, func(r Route) bool {
		reachable := slices.ContainsFunc(r.Link.addresses, func(p netip.Prefix) bool { return p.Contains(r.Gateway) })
		if !reachable {
			n.Warnings = append(n.Warnings, "error adding route to "+r.Destination.String()+" over "+r.Link.Name+
				": the gateway "+r.Gateway.String()+" is unreachable")
		}

		return !reachable
	})
}
