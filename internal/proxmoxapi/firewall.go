package proxmoxapi

// Paths of the firewall of the data centre.
const (
	PathFirewallOptions = "/cluster/firewall/options"
	PathSecurityGroups  = "/cluster/firewall/groups"
)

// FirewallOptions are those of the data centre's firewall. While it is off, no firewall of a VM filters anything.
type FirewallOptions struct {
	Enable int `json:"enable"`
}

// IsOn reports whether it is on.
func (o FirewallOptions) IsOn() bool { return o.Enable > 0 }

// SecurityGroup is a security group of the data centre's firewall.
type SecurityGroup struct {
	Name string `json:"group"`
}
