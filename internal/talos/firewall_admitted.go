package talos

import (
	"net/netip"
	"slices"

	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
)

// Admitted is what a rule of Talos' firewall admits to a machine.
type Admitted struct {
	Rule     string // the rule's name
	Protocol string // tcp, udp, icmp or icmpv6
	Ports    [][2]uint16
	// Sources are without the networks that the rule excepts.
	Sources []netip.Prefix
}

// AdmittedBy returns what the rules of a machine configuration's firewall admit. The error quotes nothing.
func AdmittedBy(configuration string) (list []Admitted, err error) {
	loaded, err := configloader.NewFromBytes([]byte(configuration))
	if err != nil {
		return nil, errNotConfiguration
	}

	for _, document := range loaded.Documents() {
		rule, isRule := document.(config.NetworkRule)
		if !isRule {
			continue
		}

		a := Admitted{Protocol: rule.Protocol().String(), Ports: rule.PortRanges()}
		if named, is := document.(config.NamedDocument); is {
			a.Rule = named.Name()
		}

		for _, subnet := range rule.Subnets() {
			a.Sources = append(a.Sources, without(subnet.Masked(), rule.ExceptSubnets())...)
		}

		list = append(list, a)
	}

	return list, nil
}

// without returns the parts of a network that are in none of the others.
func without(network netip.Prefix, others []netip.Prefix) []netip.Prefix {
	overlaps := func(other netip.Prefix) bool { return other.Overlaps(network) }
	contains := func(other netip.Prefix) bool { return overlaps(other) && other.Bits() <= network.Bits() }

	switch {
	case slices.ContainsFunc(others, contains):
		return nil
	case !slices.ContainsFunc(others, overlaps):
		return []netip.Prefix{network}
	}

	lower := netip.PrefixFrom(network.Addr(), network.Bits()+1)

	bytes := network.Addr().AsSlice()
	bytes[network.Bits()/8] |= 0x80 >> (network.Bits() % 8)
	middle, _ := netip.AddrFromSlice(bytes)

	return slices.Concat(without(lower, others), without(netip.PrefixFrom(middle, lower.Bits()), others))
}
