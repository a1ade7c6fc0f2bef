package talos

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"
)

// Firewall says who reaches the services of a cluster's machines. Everything else is blocked.
type Firewall struct {
	// Admin are the networks of the computers that administer the cluster, through the APIs of Talos and Kubernetes.
	Admin []netip.Prefix
	// KubernetesAPI are further networks that reach the Kubernetes API.
	KubernetesAPI []netip.Prefix
	// Nodes are the networks from which nodes reach each other, ControlPlanes those of the control planes among them. They
	// are networks, because members that join etcd are not known to the others before.
	Nodes, ControlPlanes []netip.Prefix
	// CNI are the ports of the CNI.
	CNI CNIPorts
}

// CNIPorts are the ports of a CNI on every node.
type CNIPorts struct {
	// TCP are those that nodes and pods connect to, UDP those that nodes send to.
	TCP, UDP []uint16
}

// Kinds of the documents of Talos' firewall.
const (
	firewallAction = "NetworkDefaultActionConfig"
	firewallRule   = "NetworkRuleConfig"
)

// firewall returns the documents of a node's firewall; none without one. Talos itself admits what comes over loopback,
// answers, ICMP (five packets per second), and pods' queries to its DNS server
// (internal/app/machined/pkg/controllers/network/nftables_chain_config.go). Pods reach services of their own node with
// their own address. Since Talos 1.14 etcd serves its metrics on port 2383, which nothing of the cluster needs.
func (c ClusterConfig) firewall(role string) []object {
	f := c.Firewall
	if f == nil {
		return nil
	}

	pods := c.Pods()
	docs := []object{
		document(firewallAction, object{"ingress": nethelpers.DefaultActionBlock.String()}),
		rule("apid", "tcp", []any{constants.ApidPort}, f.Admin, f.Nodes),
		rule("kubelet", "tcp", []any{constants.KubeletPort}, f.Nodes, pods),
	}

	if len(f.CNI.TCP) > 0 {
		docs = append(docs, rule("cni-tcp", "tcp", toAny(f.CNI.TCP), f.Nodes, pods))
	}

	if len(f.CNI.UDP) > 0 {
		docs = append(docs, rule("cni-udp", "udp", toAny(f.CNI.UDP), f.Nodes))
	}

	if role != RoleControlPlane {
		return docs
	}

	etcd := fmt.Sprintf("%d-%d", constants.EtcdClientPort, constants.EtcdPeerPort)

	return append(docs,
		rule("trustd", "tcp", []any{constants.TrustdPort}, f.Nodes),
		rule("kubernetes-api", "tcp", []any{APIPort}, f.Admin, f.KubernetesAPI, f.Nodes, pods),
		rule("etcd", "tcp", []any{etcd}, f.ControlPlanes),
	)
}

// Pods returns the networks of pods.
func (c ClusterConfig) Pods() []netip.Prefix {
	if len(c.PodCIDRs) == 0 {
		return []netip.Prefix{netip.MustParsePrefix(DefaultPodCIDR)}
	}

	return c.PodCIDRs
}

// rule admits networks to ports.
func rule(name, protocol string, ports []any, networks ...[]netip.Prefix) object {
	var sources []object

	for i, network := range slices.Concat(networks...) {
		if !slices.Contains(slices.Concat(networks...)[:i], network) {
			sources = append(sources, object{"subnet": network.String()})
		}
	}

	return document(firewallRule, object{
		"name": name, "portSelector": object{"ports": ports, "protocol": protocol}, "ingress": sources,
	})
}

func toAny(ports []uint16) []any {
	list := make([]any, 0, len(ports))
	for _, port := range ports {
		list = append(list, int(port))
	}

	return list
}

// HasFirewallRules reports whether patches have rules for Talos' firewall.
func HasFirewallRules(patches []string) bool {
	return slices.ContainsFunc(patches, func(patch string) bool {
		return slices.ContainsFunc(patchDocuments(patch), func(document object) bool {
			return document["kind"] == firewallRule
		})
	})
}
