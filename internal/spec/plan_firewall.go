package spec

import (
	"fmt"
	"net/netip"
	"slices"

	"talos-proxmox/internal/cilium"
	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/talos"
)

// Firewall is Talos' firewall on all machines of a cluster. They admit what the cluster itself needs from their own
// networks, and these networks; NetworkRuleConfig documents in patches admit more.
type Firewall struct {
	// The networks of the computers that administer the cluster: they reach the APIs of Talos and Kubernetes. Default:
	// none.
	Admin []netip.Prefix `pulumi:"admin,optional" provider:"type=go@1:netip:text"`
	// Further networks that reach the Kubernetes API. Default: none.
	KubernetesAPI []netip.Prefix `json:",omitempty" pulumi:"kubernetesApi,optional" provider:"type=go@1:netip:text"`
	// Proxmox' own firewall in front of the machines, with the same rules. Default: none.
	Proxmox *ProxmoxFirewall `json:",omitempty" pulumi:"proxmox,optional"`
}

// ProxmoxFirewall is Proxmox' firewall in front of the machines of a cluster.
type ProxmoxFirewall struct {
	// Security groups of the data centre whose rules the machines get as well. Default: none.
	SecurityGroups []string `json:",omitempty" pulumi:"securityGroups,optional"`
}

// firewallAccepts is the value of FirewallConfig.Ingress for no firewall.
const firewallAccepts = "accept"

// planFirewall plans the firewall; nil = none.
func (p *planner) planFirewall(path string, c ClusterConfig, cluster Cluster) *Firewall {
	if c.Firewall == nil {
		return nil
	}

	at := path + ".firewall"

	switch {
	case c.Firewall.Ingress == firewallAccepts:
		if len(c.Firewall.Admin)+len(c.Firewall.KubernetesAPI) > 0 || c.Firewall.Proxmox != nil {
			p.problems.Add(at+".ingress", c.Firewall.Ingress, "is no firewall, and admin, kubernetesApi and proxmox have no effect; remove "+
				"it, or them")
		}

		return nil
	case cluster.CNI == nil && !p.hasFirewallRules(cluster):
		p.warn("%s: the ports of your CNI are closed; open them to the machines' networks with NetworkRuleConfig documents in "+
			"patches, such as UDP 8472 for VXLAN (docs/networking.md#the-firewall)", at)
	case cluster.CNI != nil && cilium.UsesIPsec(c.CNI.Values):
		p.problems.Add(path+".cni.values.encryption", nil, "is IPsec, which Talos' firewall has no rules for; use type: wireguard, "+
			"or set firewall.ingress to accept")
	}

	return &Firewall{
		Admin:         p.planSources(at+".admin", c.Firewall.Admin, cluster.Network),
		KubernetesAPI: p.planSources(at+".kubernetesApi", c.Firewall.KubernetesAPI, cluster.Network),
		Proxmox:       p.planProxmoxFirewall(at+".proxmox", c.Firewall.Proxmox, cluster),
	}
}

// planProxmoxFirewall plans Proxmox' firewall, which is switched on for the machines' cards; nil = none.
func (p *planner) planProxmoxFirewall(path string, c *ProxmoxFirewallConfig, cluster Cluster) *ProxmoxFirewall {
	if c == nil {
		return nil
	}

	CheckSecurityGroups(path+".securityGroups", c.SecurityGroups, p.problems)

	for _, nodes := range [][]Node{cluster.ControlPlanes, cluster.Workers} {
		for i := range nodes {
			nodes[i].Firewall = true
		}
	}

	return &ProxmoxFirewall{SecurityGroups: c.SecurityGroups}
}

// hasFirewallRules reports whether patches of a cluster have rules, or may have.
func (p *planner) hasFirewallRules(cluster Cluster) bool {
	patches := cluster.Patches
	for _, n := range cluster.Nodes() {
		patches = slices.Concat(patches, n.Patches)
	}

	return p.options.Blinded || talos.HasFirewallRules(patches)
}

// CheckSecurityGroups reports what cannot be the name of a security group, below a path.
func CheckSecurityGroups(path string, groups []string, found *problem.List) {
	p := &planner{problems: found}

	for i, group := range groups {
		at := fmt.Sprintf("%s[%d]", path, i)
		p.checkNotEmpty(at, group, "write its name, such as web")

		if p.checkFormat(at, group, securityGroupFormat) && slices.Contains(groups[:i], group) {
			found.Add(at, group, "is listed already; remove one of the two")
		}
	}
}

// ProxmoxFirewalls returns the security groups of Proxmox' firewalls in front of clusters' machines, by the path of the
// key; a firewall without has none.
func (p *Plan) ProxmoxFirewalls() map[string][]string {
	all := map[string][]string{}

	for i, c := range p.Clusters {
		if c.Firewall != nil && c.Firewall.Proxmox != nil {
			all[fmt.Sprintf("clusters[%d].firewall.proxmox", i)] = c.Firewall.Proxmox.SecurityGroups
		}
	}

	return all
}

// planSources parses the networks that a firewall admits.
func (p *planner) planSources(path string, texts []string, network Network) (sources []netip.Prefix) {
	for i, text := range texts {
		at := fmt.Sprintf("%s[%d]", path, i)
		source, err := netip.ParsePrefix(text)

		switch {
		case p.isUndecrypted(at):
		case err != nil || source.Addr().Is4In6():
			p.problems.Add(at, text, "is not a network; write it as 10.0.9.0/24, or a single address as 10.0.9.5/32")
		case source != source.Masked():
			p.problems.Add(at, text, "is an address inside a network; write the network as %s, or the address as %s",
				source.Masked(), netip.PrefixFrom(source.Addr(), source.Addr().BitLen()))
		case source.Addr().Is6() && network.IPv6 == nil:
			p.problems.Add(at, text, "is IPv6, and the machines have IPv4 only; use IPv4 networks, or set network.ipv6")
		case slices.Contains(sources, source):
			p.problems.Add(at, text, "is listed already; remove one of the two")
		default:
			sources = append(sources, source)
		}
	}

	return sources
}

// Admits reports whether a machine's firewall admits an address to the Talos API: one of an administrator's computer,
// or of a machine's network.
func (c Cluster) Admits(source netip.Addr) bool {
	return c.Firewall == nil || slices.ContainsFunc(
		slices.Concat(c.Firewall.Admin, c.nodeNetworks()), func(n netip.Prefix) bool { return n.Contains(source) },
	)
}

// nodeNetworks returns the networks of the nodes' first cards.
func (c Cluster) nodeNetworks() (list []netip.Prefix) {
	for _, n := range c.Nodes() {
		network := c.NetworkOf(n)

		list = append(list, network.CIDR)
		if network.IPv6 != nil {
			list = append(list, network.IPv6.CIDR)
		}
	}

	return list
}
