package spec

// FirewallConfig is Talos' firewall on the machines of a cluster. Further rules, for ports of your own, are
// NetworkRuleConfig documents in patches.
type FirewallConfig struct {
	// What happens to packets that no rule admits. `accept` is no firewall, for clusters with `security: hardened`.
	Ingress string `json:"ingress,omitempty" jsonschema:"default=block,enum=block,enum=accept"`
	// The networks of the computers that administer the cluster, also by IPv6 in a dual-stack cluster: they reach the
	// Talos API (port 50000) of every machine, and the Kubernetes API (6443). The computer that runs the program has to be
	// in one of them or in a network of the machines.
	Admin []string `json:"admin,omitempty" jsonschema:"example=10.0.9.0/24"`
	// Further networks that reach the Kubernetes API: those of its users, and of a load balancer in front of it.
	KubernetesAPI []string `json:"kubernetesApi,omitempty" jsonschema:"example=10.1.0.0/16"`
	// Proxmox' own firewall in front of the machines, with the same rules. Default: none; `proxmox: {}` adds nothing to
	// the rules. The firewall of the data centre has to be on.
	Proxmox *ProxmoxFirewallConfig `json:"proxmox,omitempty"`
}

// ProxmoxFirewallConfig is Proxmox' firewall in front of the machines of a cluster.
type ProxmoxFirewallConfig struct {
	// Security groups of the data centre whose rules the machines get as well. They exist already.
	SecurityGroups []string `json:"securityGroups,omitempty" jsonschema:"example=web"`
}
