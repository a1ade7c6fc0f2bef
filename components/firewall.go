package components

import (
	"fmt"
	"net/netip"
	"slices"

	"talos-proxmox/internal/cilium"
	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/talos"
)

func validateFirewall(a TalosClusterArgs, found *problem.List) {
	if a.Firewall == nil {
		return
	}

	for path, networks := range map[string][]netip.Prefix{
		"firewall.admin": a.Firewall.Admin, "firewall.kubernetesApi": a.Firewall.KubernetesAPI,
	} {
		for i, network := range networks {
			checkNetwork(found, fmt.Sprintf("%s[%d]", path, i), network)
		}
	}

	if a.Firewall.Proxmox != nil {
		spec.CheckSecurityGroups("firewall.proxmox.securityGroups", a.Firewall.Proxmox.SecurityGroups, found)
	}

	if a.CNI == nil {
		return
	}

	if values, err := userValues(a.CNI); err == nil && cilium.UsesIPsec(values) {
		found.Add("cni.values.encryption", nil, "is IPsec, which Talos' firewall has no rules for; use type: wireguard, or "+
			"remove firewall")
	}
}

// clusterFirewall returns Talos' firewall on the nodes; nil = none.
func clusterFirewall(a TalosClusterArgs) *talos.Firewall {
	if a.Firewall == nil {
		return nil
	}

	f := &talos.Firewall{Admin: a.Firewall.Admin, KubernetesAPI: a.Firewall.KubernetesAPI}

	if a.CNI != nil {
		if settings, err := ciliumSettings(a); err == nil { // validateCNI reports an error
			f.CNI.TCP, f.CNI.UDP = settings.Ports()
		}
	}

	for _, n := range a.nodes() {
		network := a.network(n)
		for _, cidr := range validPrefixes(network.CIDR, orZero(network.IPv6).CIDR) {
			f.Nodes = append(f.Nodes, cidr)
			if n.isControlPlane() {
				f.ControlPlanes = append(f.ControlPlanes, cidr)
			}
		}
	}

	for _, n := range a.nodes() {
		f.Nodes = append(f.Nodes, n.transitNetworks(f.Nodes)...)
	}

	// In this order, whatever nodes there are: another order would be a change of all machines.
	for _, list := range []*[]netip.Prefix{&f.Nodes, &f.ControlPlanes} {
		slices.SortFunc(*list, netip.Prefix.Compare)
		*list = slices.Compact(*list)
	}

	return f
}

// transitNetworks returns the networks of a node's additional links with routes to networks of nodes: its connections
// to these come from there.
func (n ClusterNode) transitNetworks(nodes []netip.Prefix) (list []netip.Prefix) {
	add := func(address netip.Prefix, routes []Route) {
		if address.IsValid() && slices.ContainsFunc(routes, func(r Route) bool {
			return slices.ContainsFunc(nodes, r.Destination.Overlaps)
		}) {
			list = append(list, address.Masked())
		}
	}
	addVLANs := func(vlans []VLAN) {
		for _, vlan := range vlans {
			add(vlan.Address, vlan.Routes)
		}
	}

	addVLANs(n.VLANs)

	for _, card := range n.Machine.ExtraNICs {
		add(card.Address, card.Routes)
		addVLANs(card.VLANs)
	}

	for _, bond := range n.Bonds {
		add(bond.Address, bond.Routes)
		addVLANs(bond.VLANs)
	}

	return list
}
