package spec

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"talos-proxmox/internal/talos"
)

// noIPv6 and noIPv6Network are the problems of IPv6 where IPv4 is needed: Proxmox hosts and machines are reached by it,
// and Talos' images are in a registry without IPv6 (siderolabs/talos#6281).
const (
	noIPv6        = "is IPv6, and this needs IPv4 (docs/networking.md#dual-stack); set an IPv4 address"
	noIPv6Network = "is IPv6, and this needs IPv4 as well: the images' registry ghcr.io and the program's connections to " +
		"machines have no IPv6; set an IPv4 network%s"
)

// besideIPv4 says in which key the IPv6 network is, beside the IPv4 network at a path; empty = in none.
func besideIPv4(path string) string {
	for suffix, key := range map[string]string{
		".network.cidr": "network.ipv6", ".podCidr": "podCidrIPv6", ".serviceCidr": "serviceCidrIPv6",
	} {
		if strings.HasSuffix(path, suffix) {
			return ", and the IPv6 network in " + key
		}
	}

	return ""
}

// parseAddress parses an IPv4 address, and reports an unusable one.
func (p *planner) parseAddress(path, text string) (netip.Addr, bool) {
	if text == "" {
		return netip.Addr{}, false
	}

	address, err := netip.ParseAddr(text)
	switch {
	case err != nil && strings.Contains(text, "/"):
		p.problems.Add(path, text, "is an address with a prefix length; write the address alone")
	case err != nil:
		p.problems.Add(path, text, "is not an IPv4 address; write it as 10.0.0.2")
	case address.Is6():
		p.problems.Add(path, text, noIPv6)
	case address.IsUnspecified() || address.IsMulticast() || address == lastAddress(netip.PrefixFrom(address, 0)):
		p.problems.Add(path, text, "cannot be a machine's address; use a unicast address")
	default:
		return address, true
	}

	return netip.Addr{}, false
}

// parseNetwork parses an IPv4 network of machines; invalid if it is unusable.
func (p *planner) parseNetwork(path, text string) netip.Prefix {
	return p.parseNetworkFor("machines", path, text, 8, 30)
}

// parseNetworkFor parses an IPv4 network for a purpose, with limits of its prefix length.
func (p *planner) parseNetworkFor(what, path, text string, shortest, longest int) netip.Prefix {
	if text == "" {
		return netip.Prefix{}
	}

	prefix, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		p.problems.Add(path, text, "is not an IPv4 network; write it as 10.0.0.0/24")
	case prefix.Addr().Is6():
		p.problems.Add(path, text, noIPv6Network, besideIPv4(path))
	case prefix.Bits() < shortest || prefix.Bits() > longest:
		p.problems.Add(path, text, "has an unsuitable size for %s; set a prefix length from %d to %d", what, shortest, longest)
	case prefix != prefix.Masked():
		p.problems.Add(path, text, "is an address inside a network; write the network as %s", prefix.Masked())
	case prefix.Addr().IsMulticast() || prefix.Addr().As4()[0] == 0 || prefix.Addr().As4()[0] >= 240:
		p.problems.Add(path, text, "is not a network for %s; use a private one, such as 10.0.0.0/24", what)
	default:
		return prefix
	}

	return netip.Prefix{}
}

// checkNTS checks that the time servers of a cluster can be authenticated, which planNetworkIn has checked as names or
// addresses.
func (p *planner) checkNTS(path string, c NetworkConfig, pools []*pool) {
	if !c.NTS {
		return
	}

	if len(c.NTP) == 0 {
		p.problems.Add(path+".nts", true, "needs time servers; set %s.ntp", path)
	}

	for i, text := range c.NTP {
		if _, err := netip.ParseAddr(text); err == nil {
			p.problems.Add(fmt.Sprintf("%s.ntp[%d]", path, i), text, "is an address, and NTS needs the name in the server's certificate; "+
				"write the name, or set nts to false")
		}
	}

	for _, g := range pools {
		class := p.classes[g.Template]
		if needs := talos.NTSNeeds(class.Version); needs != "" {
			p.problems.Add(path+".nts", true, "needs Talos %s, and %s.version is %s; set a newer one, or nts to false",
				needs, class.path, class.Version)

			return
		}
	}
}

// planNetwork plans a network; unusable values are invalid.
func (p *planner) planNetwork(path, owner string, c NetworkConfig) Network {
	return p.planNetworkIn(path, owner, Network{
		CIDR: p.parseNetwork(path+".cidr", c.CIDR), IPv6: p.planIPv6Network(path+".ipv6", owner, c.IPv6),
	}, c)
}

// planNetworkIn plans a network with the addresses of n.
func (p *planner) planNetworkIn(path, owner string, n Network, c NetworkConfig) Network {
	n.Bridge, n.VLAN, n.MTU, n.DHCP = c.Bridge, c.VLAN, c.MTU, c.Addressing == "dhcp"
	p.checkFormat(path+".bridge", c.Bridge, bridgeFormat)
	p.checkMTU(path+".mtu", c.MTU)

	for i, text := range c.DNS {
		at := fmt.Sprintf("%s.dns[%d]", path, i)
		p.checkNotEmpty(at, text, "write it as 1.1.1.1")

		if server, ok := p.parseServer(at, text, n); ok {
			n.DNS = append(n.DNS, server)
		}
	}

	for i, text := range c.NTP {
		at := fmt.Sprintf("%s.ntp[%d]", path, i)
		p.checkNotEmpty(at, text, "write it as time.cloudflare.com")

		if p.checkFormat(at, text, serverFormat) {
			n.NTP = append(n.NTP, text)
		}
	}

	n.NTS = c.NTS

	if gateway, ok := p.parseAddress(path+".gateway", c.Gateway); ok && p.checkInside(path+".gateway", gateway, n.CIDR) {
		n.Gateway = gateway
		p.addresses.take(gateway, claim{owner: "the gateway of " + owner, shared: true})
	}

	n.Routes = p.planRoutes(path+".routes", c.Routes, n.CIDR)

	return n
}

// planNameResolution plans how the machines of a cluster resolve names.
func (p *planner) planNameResolution(path string, c NetworkConfig, n *Network) {
	for i, domain := range c.SearchDomains {
		at := fmt.Sprintf("%s.searchDomains[%d]", path, i)
		p.checkNotEmpty(at, domain, "write it as example.org")

		if p.checkFormat(at, domain, domainFormat) {
			n.SearchDomains = append(n.SearchDomains, domain)
		}
	}

	for i, h := range c.StaticHosts {
		at := fmt.Sprintf("%s.staticHosts[%d]", path, i)

		for j, name := range h.Names {
			at := fmt.Sprintf("%s.names[%d]", at, j)
			p.checkNotEmpty(at, name, "write it as nas.example.org")
			p.checkFormat(at, name, hostNameFormat)
		}

		address, ok := p.parseAddress(at+".address", h.Address)
		if ok && slices.ContainsFunc(n.StaticHosts, func(o StaticHost) bool { return o.Address == address }) {
			p.problems.Add(at+".address", h.Address, "has an entry already; put the names of both into one")
		}

		n.StaticHosts = append(n.StaticHosts, StaticHost{address, h.Names})
	}
}

// planVIP returns the VIP, which must be in the control planes' network; invalid without one.
func (p *planner) planVIP(path, text string, network Network) netip.Addr {
	vip, ok := p.parseAddress(path, text)
	if !ok || !p.checkInside(path, vip, network.CIDR) {
		return netip.Addr{}
	}

	return vip
}

// checkKubeVIP refuses patches with which kube-vip would answer for the VIP as well as Talos does.
func (p *planner) checkKubeVIP(c Cluster) {
	if !c.VIP.IsValid() {
		return
	}

	check := func(patches, paths []string) {
		for i, patch := range patches {
			announces := strings.Contains(patch, "kube-vip/kube-vip") && strings.Contains(patch, c.VIP.String())
			if announces && !p.problems.Has(paths[i]) {
				p.problems.Add(paths[i], nil, "makes kube-vip answer for %s, as Talos does (network.vip), and two machines would have the "+
					"address; remove one of the two (docs/networking.md#kube-vip)", c.VIP)
			}
		}
	}

	check(c.Patches, c.PatchPaths)

	for _, n := range c.Nodes() {
		check(n.Patches, n.PatchPaths)
	}
}

// minMTU is what a Talos node needs for its own tunnels; packets of the pod network are smaller than the node's.
const minMTU = 1280

func (p *planner) checkMTU(path string, mtu int) {
	if mtu != 0 && mtu < minMTU {
		p.problems.Add(path, mtu, "is too small for Kubernetes; use at least %d, or 0 for the bridge's", minMTU)
	}
}

// checkInside reports an address that no machine of the network can use, and returns whether one can.
func (p *planner) checkInside(path string, address netip.Addr, network netip.Prefix) bool {
	why := addressProblem(address, network)
	if why != "" && network.IsValid() {
		p.problems.Add(
			path, address.String(), "%s; use one between %s and %s", why, network.Addr().Next(), lastAddress(network).Prev(),
		)
	}

	return why == ""
}

// addressProblem returns why no machine of a network can use an address; empty = one can.
func addressProblem(address netip.Addr, network netip.Prefix) string {
	switch {
	case !network.Contains(address):
		return fmt.Sprintf("is outside the network %s", network)
	case address == network.Addr():
		return fmt.Sprintf("is the network %s itself", network)
	case address.Is4() && address == lastAddress(network):
		return fmt.Sprintf("is the broadcast address of %s", network)
	default:
		return ""
	}
}

// AddOffset returns the n-th address after an address. IPv4 networks end below 240.0.0.0 and pools are small, so it
// cannot overflow.
func AddOffset(address netip.Addr, n int) netip.Addr {
	bytes := address.AsSlice()
	for i := len(bytes) - 1; i >= 0 && n > 0; i-- {
		n += int(bytes[i])
		bytes[i] = byte(n)
		n >>= 8
	}

	result, _ := netip.AddrFromSlice(bytes)

	return result
}

// AddressOffset returns how many addresses a later one of the same family is after a first one; at most 2^32.
func AddressOffset(first, later netip.Addr) int {
	from, to := first.AsSlice(), later.AsSlice()
	offset := 0

	for i := range to {
		offset = min(offset<<8+int(to[i])-int(from[i]), 1<<32)
	}

	return offset
}

// lastAddress returns a network's last address, which is the broadcast address of IPv4.
func lastAddress(network netip.Prefix) netip.Addr {
	bytes := network.Masked().Addr().AsSlice()
	for bit := network.Bits(); bit < len(bytes)*8; bit++ {
		bytes[bit/8] |= 0x80 >> (bit % 8)
	}

	last, _ := netip.AddrFromSlice(bytes)

	return last
}

// firstFreeAddress returns the first of count consecutive free addresses, at a multiple of ten if possible.
func (p *planner) firstFreeAddress(n Network, count int) (string, bool) {
	if !n.CIDR.IsValid() {
		return "", false
	}

	const limit = 4096
	for _, step := range []int{10, 1} {
		for at := step; at < limit; at += step {
			if p.areFree(n, at, count) {
				return AddOffset(n.CIDR.Addr(), at).String(), true
			}
		}
	}

	return "", false
}

func (p *planner) areFree(n Network, at, count int) bool {
	for i := range count {
		address := AddOffset(n.CIDR.Addr(), at+i)
		if _, taken := p.addresses.held[address]; taken || addressProblem(address, n.CIDR) != "" {
			return false
		}
	}

	return true
}
