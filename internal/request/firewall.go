package request

import "net/netip"

// Firewall is the request of `talosops firewall`: Proxmox' firewall in front of a machine.
type Firewall struct {
	Proxmox map[string]string `json:"proxmox"` // as in [ImageFile]; secret
	VMID    int               `json:"vmid"`
	Machine string            `json:"machine"`
	// Address is that of the machine's Talos API. Configured reports whether it ran with its configuration before.
	Address    netip.Addr     `json:"address"`
	Configured bool           `json:"configured"`
	Rules      []FirewallRule `json:"rules"`
}

// FirewallRule is a rule of Proxmox' firewall, as its API has it. Of a rule that names a security group, Type is group
// and Action the group.
type FirewallRule struct {
	Type   string `json:"type"`
	Action string `json:"action"`
	Proto  string `json:"proto,omitempty"`
	DPort  string `json:"dport,omitempty"`
	Source string `json:"source,omitempty"`
	Dest   string `json:"dest,omitempty"`
	// Comment says what the rule is for.
	Comment string `json:"comment"`
}
