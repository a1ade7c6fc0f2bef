package ownership

import "strings"

// firewallPrefix begins the comments of the program's rules in the firewall of a VM.
const firewallPrefix = "talos-proxmox: "

// FirewallRule returns the comment of a rule of Proxmox' firewall.
func FirewallRule(about string) string { return firewallPrefix + about }

// IsFirewallRule reports whether a comment is of a rule that the program made.
func IsFirewallRule(comment string) bool { return strings.HasPrefix(comment, firewallPrefix) }
