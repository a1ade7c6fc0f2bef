package network

import (
	"net/netip"
	"slices"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"
)

// Admits reports whether a configuration's firewall admits new connections from an address to a TCP port, as Talos'
// chain "ingress" does (internal/app/machined/pkg/controllers/network/nftables_chain_config.go, the same in 1.11 to
// 1.14): a rule accepts what it matches if the rest is blocked, and drops what it does not match if the rest is
// accepted.
// The lab's machines are on loopback, which the real chain trusts; here it is a network.
func Admits(cfg config.Config, source netip.Addr, port uint16) bool {
	rules := cfg.NetworkRules()
	blocks := rules.DefaultAction() == nethelpers.DefaultActionBlock

	for _, rule := range rules.Rules() {
		if rule.Protocol() != nethelpers.ProtocolTCP || !slices.ContainsFunc(rule.PortRanges(), func(r [2]uint16) bool {
			return r[0] <= port && port <= r[1]
		}) {
			continue
		}

		within := func(p netip.Prefix) bool { return p.Contains(source) }
		matches := slices.ContainsFunc(rule.Subnets(), within) && !slices.ContainsFunc(rule.ExceptSubnets(), within)

		if blocks && matches {
			return true
		}

		if !blocks && !matches {
			return false
		}
	}

	return !blocks
}
