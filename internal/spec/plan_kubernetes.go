package spec

import (
	"fmt"
	"net/netip"
	"strings"

	"talos-proxmox/internal/talos"
)

// Prefix lengths of Kubernetes' own networks. Each machine gets a /24 for its pods; the API server accepts at most a
// /12 for services, and Talos assigns its tenth address to the cluster's DNS.
const (
	shortestPods, longestPods         = 8, podsOfMachine
	shortestServices, longestServices = 12, 28
	podsOfMachine                     = 24
)

// namedNetwork is a network, or a single address, in the configuration.
type namedNetwork struct {
	path string
	netip.Prefix
}

// checkKubernetesNetworks reports networks of pods and services that overlap networks or addresses in the
// configuration: a machine with such an address starts neither its kubelet nor etcd, and pods cannot reach a host or
// server with one. The clusters are in the order of the configuration.
func (p *planner) checkKubernetesNetworks(clusters []Cluster) {
	used := p.usedNetworks(clusters)
	for i, c := range clusters {
		path := fmt.Sprintf("clusters[%d]", i)

		pods, services := namedNetwork{path + ".podCidr", c.PodCIDR}, namedNetwork{path + ".serviceCidr", c.ServiceCIDR}
		podsIPv6 := namedNetwork{path + ".podCidrIPv6", c.PodCIDRIPv6}
		servicesIPv6 := namedNetwork{path + ".serviceCidrIPv6", c.ServiceCIDRIPv6}

		p.checkPodsAndServices(pods, services, used)
		p.checkPodsAndServices(podsIPv6, servicesIPv6, used)

		if c.CNI != nil && c.CNI.BGP != nil {
			p.checkAnnounced(path, pods, services, podsIPv6, servicesIPv6)
		}

		p.checkPodCIDRSize(path+".podCidr", c, c.PodCIDR, podsOfMachine, "")
		p.checkPodCIDRSize(path+".podCidrIPv6", c, c.PodCIDRIPv6, podsOfMachineIPv6, "-ipv6")
	}
}

// checkPodsAndServices reports Kubernetes' networks of one family that overlap others or each other.
func (p *planner) checkPodsAndServices(pods, services namedNetwork, used []namedNetwork) {
	if !p.checkOverlap(pods, used, services) && !p.checkOverlap(services, used, pods) && pods.IsValid() &&
		pods.Overlaps(services.Prefix) {
		p.problems.Add(
			pods.path, pods.String(), "overlaps %s (%s); %s", services.path, services,
			suggestNetwork(pods, append(used, services)),
		)
	}
}

// checkAnnounced reports addresses for Services that are in a network of Kubernetes; without BGP they are in the nodes'
// network, which is compared with these.
func (p *planner) checkAnnounced(cluster string, networks ...namedNetwork) {
	for _, r := range p.services {
		last := AddOffset(r.first, r.claim.count-1)

		for _, network := range networks {
			if strings.HasPrefix(r.claim.path, cluster+".") && network.IsValid() && !lastAddress(network.Prefix).Less(r.first) &&
				!last.Less(network.Addr()) {
				p.problems.Add(r.claim.path, fmt.Sprintf("%s-%s", r.first, last), "overlaps %s (%s); choose other addresses",
					network.path, network)
			}
		}
	}
}

// usedNetworks returns the networks and addresses of hosts, machines and servers.
func (p *planner) usedNetworks(clusters []Cluster) []namedNetwork {
	var list []namedNetwork

	addAddress := func(path string, address netip.Addr) {
		if address.IsValid() {
			list = append(list, namedNetwork{path, netip.PrefixFrom(address, address.BitLen())})
		}
	}
	for i, c := range clusters {
		path := fmt.Sprintf("clusters[%d]", i)

		list = appendNetworks(list, path+".network", c.Network)

		if configured := p.config.Clusters[i].Endpoint; configured != nil {
			address, _ := netip.ParseAddr(configured.Host)
			addAddress(path+".endpoint.host", address)
		}

		for j, server := range c.Network.DNS {
			addAddress(fmt.Sprintf("%s.network.dns[%d]", path, j), server)
		}

		for j, server := range c.Network.NTP {
			address, _ := netip.ParseAddr(server)
			addAddress(fmt.Sprintf("%s.network.ntp[%d]", path, j), address)
		}

		for j, address := range logAddresses(c.LogDestinations) {
			addAddress(fmt.Sprintf("%s.logDestinations[%d]", path, j), address)
		}
	}

	for _, g := range p.pools {
		if !g.inCluster() || g.Network != nil {
			list = appendNetworks(list, g.path+".network", g.network)
		}

		if g.Network != nil {
			for j, text := range g.Network.DNS {
				server, _ := netip.ParseAddr(text)
				addAddress(fmt.Sprintf("%s.network.dns[%d]", g.path, j), server)
			}
		}

		if len(g.nodes) > 0 {
			list = append(list, g.links...)
		}
	}

	for i, c := range p.config.Hosts {
		addAddress(fmt.Sprintf("hosts[%d].address", i), p.hosts[c.Name].Address)
	}

	return list
}

// appendNetworks appends the networks of both families.
func appendNetworks(list []namedNetwork, path string, n Network) []namedNetwork {
	list = append(list, namedNetwork{path + ".cidr", n.CIDR})
	if n.IPv6 != nil {
		list = append(list, namedNetwork{path + ".ipv6.cidr", n.IPv6.CIDR})
	}

	return list
}

// checkOverlap reports the first network that overlaps own, and returns whether there is one. It suggests a network
// that does not overlap the sibling either.
func (p *planner) checkOverlap(own namedNetwork, others []namedNetwork, sibling namedNetwork) bool {
	for _, other := range others {
		if !own.IsValid() || !other.IsValid() || !own.Overlaps(other.Prefix) {
			continue
		}

		shown := other.String()
		if other.IsSingleIP() {
			shown = other.Addr().String()
		}

		p.problems.Add(
			own.path, own.String(), "overlaps %s (%s); %s", other.path, shown, suggestNetwork(own, append(others, sibling)),
		)

		return true
	}

	return false
}

// suggestNetwork suggests a free network among the usual ones for Kubernetes, of the same family and purpose as own.
func suggestNetwork(own namedNetwork, others []namedNetwork) string {
	usual := []string{
		"10.244.0.0/16", "10.96.0.0/12", "10.42.0.0/16", "10.43.0.0/16", "172.20.0.0/16", "172.21.0.0/16", "192.168.128.0/18",
		"192.168.192.0/18",
	}

	switch {
	case own.Addr().Is4():
	case own.Bits() <= longestPodsIPv6:
		usual = []string{talos.DefaultPodCIDRIPv6, "fd00:10:42::/56"}
	default:
		usual = []string{talos.DefaultServiceCIDRIPv6, "fd00:10:43::/112"}
	}

	for _, text := range usual {
		candidate, free := netip.MustParsePrefix(text), true
		for _, other := range others {
			free = free && (!other.IsValid() || !other.Overlaps(candidate))
		}

		if free {
			return "choose another, such as " + text
		}
	}

	return "choose another that overlaps no network of the stack"
}

// checkPodCIDRSize reports a network of pods without a part for each machine. A patch may change the size of the parts,
// with the flag node-cidr-mask-size and a suffix.
func (p *planner) checkPodCIDRSize(path string, c Cluster, pods netip.Prefix, part int, suffix string) {
	nodes := c.Nodes()
	if !pods.IsValid() || len(nodes) <= 1<<(part-pods.Bits()) ||
		strings.Contains(patchesOf(c), "node-cidr-mask-size"+suffix) {
		return
	}

	each, larger := "256 addresses", "10.244.0.0/16"
	if pods.Addr().Is6() {
		each, larger = "a /64", talos.DefaultPodCIDRIPv6
	}

	p.problems.Add(path, pods.String(),
		"has %s each for %d machines, and %s has %d; use a larger one, such as %s", each, 1<<(part-pods.Bits()), c.Name,
		len(nodes), larger)
}

func patchesOf(c Cluster) string {
	texts := c.Patches
	for _, n := range c.ControlPlanes {
		texts = append(texts[:len(texts):len(texts)], n.Patches...)
	}

	return strings.Join(texts, "\n")
}
