package spec

import (
	"fmt"
	"net/netip"
	"strings"
)

// Prefix lengths of Kubernetes' own networks. Each machine's pods get a /24; the API server takes no more than a /12
// for services, and Talos gives the tenth address of it to the cluster's DNS.
const (
	shortestPods, longestPods         = 8, podsOfMachine
	shortestServices, longestServices = 12, 28
	podsOfMachine                     = 24
)

// network is a network, or a single address, that the stack names.
type network struct {
	path string
	netip.Prefix
}

// checkKubernetesNetworks reports networks of pods and services that overlap what the stack names: a machine with such
// an address starts neither its kubelet nor etcd, and a host or server with one cannot be reached from pods. The
// clusters are in the order of the configuration.
func (p *planner) checkKubernetesNetworks(clusters []Cluster) {
	stated := p.statedNetworks(clusters)
	for i, c := range clusters {
		path := fmt.Sprintf("clusters[%d]", i)

		pods, services := network{path + ".podCidr", c.PodCIDR}, network{path + ".serviceCidr", c.ServiceCIDR}
		if !p.checkApart(pods, stated, services) && !p.checkApart(services, stated, pods) && pods.IsValid() &&
			pods.Overlaps(services.Prefix) {
			p.problems.Add(
				pods.path, pods.String(), "overlaps %s (%s); %s", services.path, services, freeNetwork(append(stated, services)),
			)
		}

		p.checkPodRoom(pods.path, c)
	}
}

// statedNetworks are the networks and addresses of hosts, machines and servers.
func (p *planner) statedNetworks(clusters []Cluster) []network {
	var list []network

	single := func(path string, address netip.Addr) {
		if address.IsValid() {
			list = append(list, network{path, netip.PrefixFrom(address, address.BitLen())})
		}
	}
	for i, c := range clusters {
		path := fmt.Sprintf("clusters[%d]", i)

		list = append(list, network{path + ".network.cidr", c.Network.CIDR})
		for j, server := range c.Network.DNS {
			single(fmt.Sprintf("%s.network.dns[%d]", path, j), server)
		}

		for j, server := range c.Network.NTP {
			address, _ := netip.ParseAddr(server)
			single(fmt.Sprintf("%s.network.ntp[%d]", path, j), address)
		}
	}

	for _, g := range p.pools {
		if !g.ofCluster() {
			list = append(list, network{g.path + ".network.cidr", g.network.CIDR})
		}

		for j := range g.ExtraNICs {
			if len(g.nodes) > 0 {
				list = append(
					list, network{fmt.Sprintf("%s.extraNICs[%d].cidr", g.path, j), g.nodes[0].ExtraNICs[j].Prefix().Masked()},
				)
			}
		}
	}

	for i, c := range p.config.Hosts {
		single(fmt.Sprintf("hosts[%d].address", i), p.hosts[c.Name].Address)
	}

	return list
}

// checkApart reports the first network that another one overlaps, and says whether there is one. The advice leaves the
// sibling alone, too.
func (p *planner) checkApart(own network, others []network, sibling network) bool {
	for _, other := range others {
		if !own.IsValid() || !other.IsValid() || !own.Overlaps(other.Prefix) {
			continue
		}

		shown := other.String()
		if other.IsSingleIP() {
			shown = other.Addr().String()
		}

		p.problems.Add(
			own.path, own.String(), "overlaps %s (%s); %s", other.path, shown, freeNetwork(append(others, sibling)),
		)

		return true
	}

	return false
}

// freeNetwork says which network would do, among those that are usual for Kubernetes.
func freeNetwork(others []network) string {
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

	return "choose another, which no network of the stack overlaps"
}

// checkPodRoom reports a network that has not a part for each machine. A patch may give machines parts of another size.
func (p *planner) checkPodRoom(path string, c Cluster) {
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
