package spec

import (
	"fmt"
	"net/netip"
	"strings"
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
		if !p.checkOverlap(pods, used, services) && !p.checkOverlap(services, used, pods) && pods.IsValid() &&
			pods.Overlaps(services.Prefix) {
			p.problems.Add(
				pods.path, pods.String(), "overlaps %s (%s); %s", services.path, services, suggestNetwork(append(used, services)),
			)
		}

		p.checkPodCIDRSize(pods.path, c)

		if c.CNI != nil && c.CNI.BGP != nil {
			p.checkAnnounced(path, pods, services)
		}
	}
}

// checkAnnounced reports addresses for Services that are in a network of Kubernetes; without BGP they are in the nodes'
// network, which is compared with these.
func (p *planner) checkAnnounced(cluster string, networks ...namedNetwork) {
	for _, r := range p.services {
		last := addOffset(r.first, r.claim.count-1)

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

		list = append(list, namedNetwork{path + ".network.cidr", c.Network.CIDR})

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
	}

	for _, g := range p.pools {
		if !g.inCluster() || g.Network != nil {
			list = append(list, namedNetwork{g.path + ".network.cidr", g.network.CIDR})
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
			own.path, own.String(), "overlaps %s (%s); %s", other.path, shown, suggestNetwork(append(others, sibling)),
		)

		return true
	}

	return false
}

// suggestNetwork suggests a free network among the usual ones for Kubernetes.
func suggestNetwork(others []namedNetwork) string {
	for _, text := range []string{
		"10.244.0.0/16", "10.96.0.0/12", "10.42.0.0/16", "10.43.0.0/16", "172.20.0.0/16", "172.21.0.0/16", "192.168.128.0/18",
		"192.168.192.0/18",
	} {
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

// checkPodCIDRSize reports a network without a part for each machine. A patch may change the size of the parts.
func (p *planner) checkPodCIDRSize(path string, c Cluster) {
	nodes := c.Nodes()
	if !c.PodCIDR.IsValid() || len(nodes) <= 1<<(podsOfMachine-c.PodCIDR.Bits()) ||
		strings.Contains(patchesOf(c), "node-cidr-mask-size") {
		return
	}

	p.problems.Add(path, c.PodCIDR.String(),
		"has 256 addresses each for %d machines, and %s has %d; use a larger one, such as 10.244.0.0/16",
		1<<(podsOfMachine-c.PodCIDR.Bits()), c.Name, len(nodes))
}

func patchesOf(c Cluster) string {
	texts := c.Patches
	for _, n := range c.ControlPlanes {
		texts = append(texts[:len(texts):len(texts)], n.Patches...)
	}

	return strings.Join(texts, "\n")
}
