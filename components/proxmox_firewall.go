package components

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/internal/request"
	"talos-proxmox/internal/talos"
	"talos-proxmox/internal/tokens"
	"talos-proxmox/internal/vmlookup"
)

// Limits of a rule of Proxmox' firewall (PVE/Firewall.pm of pve-firewall 6.0.4): 15 numbers of ports, of which a range
// has two, and 512 characters of addresses.
const (
	portsOfRule   = 7
	sourcesOfRule = 10
)

// proxmoxFirewall is Proxmox' firewall in front of the nodes of a cluster. It has the rules of Talos' own, as the
// machine configuration has them, and admits what Talos' own does not see.
type proxmoxFirewall struct {
	groups []string // security groups
	// services are addresses of Services, whose packets Cilium takes before Talos' rules.
	services []AddressRange
	// inside are the networks of nodes and pods, whose packets to pods are forwarded.
	inside, pods []netip.Prefix
}

// clusterProxmoxFirewall returns Proxmox' firewall in front of a cluster's nodes; nil = none.
func clusterProxmoxFirewall(a TalosClusterArgs) *proxmoxFirewall {
	if a.Firewall == nil || a.Firewall.Proxmox == nil {
		return nil
	}

	pods := clusterConfiguration(a).Pods()
	f := &proxmoxFirewall{
		groups: a.Firewall.Proxmox.SecurityGroups, pods: pods, inside: slices.Concat(clusterFirewall(a).Nodes, pods),
	}

	if a.CNI != nil {
		f.services = a.CNI.LoadBalancer
	}

	return f
}

// rules returns the rules in front of a machine with a configuration.
func (f *proxmoxFirewall) rules(configuration string) ([]request.FirewallRule, error) {
	admitted, err := talos.AdmittedBy(configuration)
	if err != nil {
		return nil, err
	}

	list := []request.FirewallRule{
		{Proto: "icmp", Comment: "ping"}, {Proto: "ipv6-icmp", Comment: "ping"},
	}

	for _, a := range admitted {
		list = append(list, rulesOf(a)...)
	}

	for _, r := range f.services {
		list = append(list, request.FirewallRule{Dest: fmt.Sprintf("%s-%s", r.First, r.Last), Comment: "services"})
	}

	for _, pods := range f.pods {
		for _, sources := range chunksOf(f.inside, pods.Addr().Is6()) {
			list = append(list, request.FirewallRule{Source: sources, Dest: pods.String(), Comment: "pods"})
		}
	}

	for i := range list {
		list[i].Type, list[i].Action = "in", "ACCEPT"
	}

	for _, group := range f.groups {
		list = append(list, request.FirewallRule{Type: "group", Action: group, Comment: "security group"})
	}

	return list, nil
}

// rulesOf returns the rules that admit what a rule of Talos' firewall admits.
func rulesOf(a talos.Admitted) (list []request.FirewallRule) {
	ports := make([]string, 0, len(a.Ports))
	for _, r := range a.Ports {
		if r[0] == r[1] {
			ports = append(ports, fmt.Sprint(r[0]))
		} else {
			ports = append(ports, fmt.Sprintf("%d:%d", r[0], r[1]))
		}
	}

	protocol := a.Protocol
	if strings.HasPrefix(protocol, "icmp") { // has no ports
		protocol, ports = map[bool]string{true: "ipv6-icmp", false: "icmp"}[protocol == "icmpv6"], []string{""}
	}

	for _, v6 := range []bool{false, true} {
		for _, sources := range chunksOf(a.Sources, v6) {
			for some := range slices.Chunk(ports, portsOfRule) {
				list = append(list, request.FirewallRule{
					Proto: protocol, DPort: strings.Join(some, ","), Source: sources, Comment: a.Rule,
				})
			}
		}
	}

	return list
}

// chunksOf returns the networks of a family as lists of rules.
func chunksOf(networks []netip.Prefix, v6 bool) (lists []string) {
	var texts []string

	for _, network := range networks {
		if text := network.String(); network.Addr().Is6() == v6 && !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}

	for some := range slices.Chunk(texts, sourcesOfRule) {
		lists = append(lists, strings.Join(some, ","))
	}

	return lists
}

// registerFirewall registers the command that sets Proxmox' firewall in front of the machine. It follows the
// configuration: Talos tries its own rules first, which are the same. A recreated machine has no rules, and a restored
// one those of its backup.
func (c *TalosNode) registerFirewall(
	ctx *pulumi.Context, name string, args TalosNodeArgs, options clusterOptions,
) (err error) {
	if options.firewall == nil {
		return nil
	}

	req := request.Firewall{Proxmox: ProxmoxSettings(ctx), VMID: args.Machine.VMID, Machine: args.Name}

	resourceOptions := []pulumi.ResourceOption{
		pulumi.Parent(c), pulumi.DependsOn([]pulumi.Resource{c.vm, c.configuration}), pulumi.DeletedWith(c.vm),
		pulumi.DeleteBeforeReplace(true),
	}
	if options.skipped {
		resourceOptions = append(resourceOptions, pulumi.IgnoreChanges([]string{"stdin"}))
	}

	c.firewall, err = talosopsCall{
		verb: "firewall",
		stdin: pulumi.All(c.applied, parsedAddress(args.Address), c.lookup).ApplyT(func(values []any) (string, error) {
			rules, err := options.firewall.rules(values[0].(string))
			if err != nil {
				return "", fmt.Errorf("firewall of %q: %w", name, err)
			}

			req := req
			req.Address, req.Configured, req.Rules = values[1].(netip.Addr), values[2].(vmlookup.State).Configured, rules
			text, err := json.Marshal(req)

			return string(text), err
		}).(pulumi.StringOutput),
		trigger:     c.Generation.ApplyT(func(text *string) string { return orZero(text) }).(pulumi.StringOutput),
		keepRequest: pulumi.Bool(false), // that the machine is configured is no reason to repeat it
		removes:     true,
	}.register(ctx, name+tokens.OfFirewall, resourceOptions...)

	return err
}
