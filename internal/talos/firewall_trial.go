package talos

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"
)

// AdmitsToTalos reports whether the firewall of a machine configuration lets an address reach the Talos API. The error
// quotes nothing.
func AdmitsToTalos(configuration string, source netip.Addr) (bool, error) {
	loaded, err := configloader.NewFromBytes([]byte(configuration))
	if err != nil {
		return false, errNotConfiguration
	}

	rules, blocks := loaded.NetworkRules(), loaded.NetworkRules().DefaultAction() == nethelpers.DefaultActionBlock

	for _, rule := range rules.Rules() {
		if !opensTalos(rule) {
			continue
		}

		contains := func(p netip.Prefix) bool { return p.Contains(source) }
		admits := slices.ContainsFunc(rule.Subnets(), contains) && !slices.ContainsFunc(rule.ExceptSubnets(), contains)

		// A rule opens ports where the others are blocked, and closes them for others where they are open.
		if admits == blocks {
			return blocks, nil
		}
	}

	return !blocks, nil
}

// opensTalos reports whether a rule is about the Talos API.
func opensTalos(rule config.NetworkRule) bool {
	return rule.Protocol() == nethelpers.ProtocolTCP && slices.ContainsFunc(rule.PortRanges(), func(r [2]uint16) bool {
		return r[0] <= constants.ApidPort && constants.ApidPort <= r[1]
	})
}

// trialRule is a rule without an effect that only firewalls on trial have: a machine whose trial was interrupted
// differs from its planned configuration.
const trialRule = "talos-proxmox-trial"

// FirewallTrial returns a running machine configuration with the firewall of a planned one, to try it; empty = they
// have the same. The error quotes nothing.
func FirewallTrial(running, planned string) (string, error) {
	kept, before := splitFirewall(running)
	_, after := splitFirewall(planned)

	same, err := sameDocuments(before, after)
	if err != nil || same {
		return "", err
	}

	marker, err := encode([]object{
		rule(trialRule, "tcp", []any{1}, []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}),
	})
	if err != nil {
		return "", err
	}

	return strings.Join(slices.Concat(kept, after, marker), "---\n"), nil
}

// IsOnTrial reports whether a running machine configuration has a firewall on trial.
func IsOnTrial(running string) bool {
	return slices.ContainsFunc(patchDocuments(running), func(document object) bool {
		return document["kind"] == firewallRule && document["name"] == trialRule
	})
}

// splitFirewall returns the documents of a machine configuration as they are, without those of the firewall, and these.
func splitFirewall(configuration string) (others, firewall []string) {
	for _, text := range separator.Split(configuration, -1) {
		text = strings.Trim(text, "\r\n") + "\n"

		documents := patchDocuments(text)
		if len(documents) == 0 {
			continue
		}

		if kind := documents[0]["kind"]; kind == firewallAction || kind == firewallRule {
			firewall = append(firewall, text)
		} else {
			others = append(others, text)
		}
	}

	return others, firewall
}

// sameDocuments reports whether two lists have equal documents, in any order.
func sameDocuments(one, other []string) (bool, error) {
	if len(one) != len(other) || len(one) == 0 {
		return len(one) == len(other), nil
	}

	first, err := readDocuments(strings.Join(one, "---\n"))
	if err != nil {
		return false, err
	}

	second, err := readDocuments(strings.Join(other, "---\n"))

	return reflect.DeepEqual(first, second), err
}
