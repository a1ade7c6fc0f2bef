package datacentre

import (
	"crypto/sha1" //nolint:gosec // Proxmox' digest
	"encoding/hex"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// GuestFirewall is Proxmox' firewall in front of a VM: its file in /etc/pve/firewall, which clones copy.
type GuestFirewall struct {
	Options Config   `json:"options,omitempty"`
	Rules   []Config `json:"rules,omitempty"` // the first one first
}

func (f GuestFirewall) clone() GuestFirewall {
	rules := make([]Config, 0, len(f.Rules))
	for _, rule := range f.Rules {
		rules = append(rules, maps.Clone(rule))
	}

	return GuestFirewall{Options: maps.Clone(f.Options), Rules: rules}
}

// RulesDigest returns PVE's digest of the rules.
func (f GuestFirewall) RulesDigest() string {
	sum := sha1.New() //nolint:gosec // as above

	for _, rule := range f.Rules {
		for _, k := range slices.Sorted(maps.Keys(rule)) {
			fmt.Fprintf(sum, "%s:%s\n", k, rule[k])
		}
	}

	return hex.EncodeToString(sum.Sum(nil))
}

// OptionsDigest returns PVE's digest of firewall options.
func OptionsDigest(options Config) string {
	sum := sha1.New() //nolint:gosec // as above

	for _, k := range slices.Sorted(maps.Keys(options)) {
		fmt.Fprintf(sum, "%s:%s\n", k, options[k])
	}

	return hex.EncodeToString(sum.Sum(nil))
}

// Firewall returns the firewall in front of a VM, whether the VM exists or not, as Proxmox does.
func (d *Datacentre) Firewall(vmid int) GuestFirewall {
	defer d.lockRead()()

	if v := d.state.VMs[vmid]; v != nil {
		return v.Firewall.clone()
	}

	return GuestFirewall{}
}

// ChangeFirewall changes the firewall in front of a VM.
func (d *Datacentre) ChangeFirewall(vmid int, change func(*GuestFirewall) error) error {
	defer d.lockWrite()()

	v := d.state.VMs[vmid]
	if v == nil {
		return change(&GuestFirewall{})
	}

	changed := v.Firewall.clone()

	err := change(&changed)
	if err == nil {
		v.Firewall = changed
	}

	return err
}

// FirewallOptions returns the options of the data centre's firewall.
func (d *Datacentre) FirewallOptions() Config {
	return withLock(d, func() Config { return maps.Clone(d.state.Firewall) })
}

// SetFirewallOptions sets options of the data centre's firewall, and deletes others.
func (d *Datacentre) SetFirewallOptions(set Config, del []string) {
	defer d.lockWrite()()

	options := Config{}
	maps.Copy(options, d.state.Firewall)

	for _, name := range del {
		delete(options, name)
	}

	maps.Copy(options, set)
	d.state.Firewall = options
}

// FirewallAdmits reports whether Proxmox' firewall admits a new TCP connection to a VM, as pve-firewall 6.0.4 compiles
// its rules (compile_iptables_filter and generate_tap_rules_direction of PVE/Firewall.pm): it filters only if the
// firewalls of the data centre, the VM and the card are on; the first rule that matches decides, and then the policy,
// which is DROP. The lab has no security groups, and its machines listen on their first card. A real host enforces a
// change within ten seconds.
func (d *Datacentre) FirewallAdmits(vmid int, source netip.Addr, to netip.AddrPort) bool {
	defer d.lockRead()()

	v := d.state.VMs[vmid]
	if v == nil || d.state.Firewall.Number("enable", 0) == 0 || !v.Firewall.Options.Bool("enable") ||
		!v.current(v.Config).Properties("net0").Bool("firewall") {
		return true
	}

	for _, rule := range v.Firewall.Rules {
		if rule["type"] == "in" && rule.Bool("enable") && matchesRule(rule, source, to) {
			return rule["action"] == "ACCEPT"
		}
	}

	return v.Firewall.Options["policy_in"] == "ACCEPT"
}

// matchesRule reports whether a rule is about a TCP connection.
func matchesRule(rule Config, source netip.Addr, to netip.AddrPort) bool {
	protocol, iface := rule["proto"], rule["iface"]

	return (iface == "" || iface == "net0") && (protocol == "" || protocol == "tcp") &&
		containsAddress(rule["source"], source) && containsAddress(rule["dest"], to.Addr()) &&
		containsPort(rule["dport"], int(to.Port()))
}

// containsAddress reports whether a list of networks, or a range of addresses, contains an address; an empty one has
// all.
func containsAddress(list string, address netip.Addr) bool {
	if first, last, isRange := strings.Cut(list, "-"); isRange {
		low, lowErr := netip.ParseAddr(first)
		high, highErr := netip.ParseAddr(last)

		return lowErr == nil && highErr == nil && !address.Less(low) && !high.Less(address)
	}

	return list == "" || slices.ContainsFunc(strings.Split(list, ","), func(text string) bool {
		if !strings.Contains(text, "/") {
			return text == address.String()
		}

		network, err := netip.ParsePrefix(text)

		return err == nil && network.Contains(address)
	})
}

// containsPort reports whether a list of ports and ranges contains a port; an empty one has all.
func containsPort(list string, port int) bool {
	return list == "" || slices.ContainsFunc(strings.Split(list, ","), func(text string) bool {
		first, last, isRange := strings.Cut(text, ":")
		low, _ := strconv.Atoi(first) // the API checks them
		high, _ := strconv.Atoi(last)

		return low == port || isRange && low <= port && port <= high
	})
}
