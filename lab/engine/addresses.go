package engine

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v4"
)

// addressMap maps the addresses of a stack to a lab's: a host's to that of the lab's host of the same name, and each
// network of up to 256 addresses to one of the lab's, in which every address keeps its last byte. The first cluster
// gets the lab's machine network.
type addressMap struct {
	lab      netip.Prefix // the lab's /16; its addresses stay as they are
	hosts    map[netip.Addr]netip.Addr
	networks map[netip.Prefix]netip.Prefix // /24 → /24
	taken    map[netip.Prefix]bool         // the lab's networks that are in use
}

const networkBits = 24

// mapAddresses replaces a stack's addresses by those of a lab with this network, such as "127.20".
func (f *stackFile) mapAddresses(network string, hosts map[netip.Addr]netip.Addr) error {
	lab, err := netip.ParsePrefix(network + ".0.0/16")
	if err != nil {
		return fmt.Errorf("unable to read the lab's network %q: %w", network, err)
	}

	s := addressMap{lab: lab, hosts: hosts, networks: map[netip.Prefix]netip.Prefix{}, taken: map[netip.Prefix]bool{}}
	s.taken[netip.PrefixFrom(lab.Addr(), networkBits)] = true // of the lab's hosts

	for _, e := range f.entries() {
		visitValues(e.value, s.reserve)
	}

	for _, what := range []string{"cluster", "machines"} {
		for _, of := range f.list(strings.TrimSuffix(what, "s") + "s") {
			cidr := text(get(of, "network"), "cidr")
			if prefix, err := netip.ParsePrefix(cidr); err == nil && prefix.Bits() < networkBits && !s.inLab(prefix.Addr()) {
				return fmt.Errorf(
					"%s %s has network %s, and the lab stands in for networks of up to 256 addresses (/%d): set a part of it to try the stack here",
					what, text(of, "name"), cidr, networkBits,
				)
			}

			s.add(cidr)
		}
	}

	for _, step := range []func(*yaml.Node){func(n *yaml.Node) { s.add(n.Value) }, s.rewrite} {
		for _, e := range f.entries() {
			if strings.HasPrefix(e.key, namespace) {
				visitValues(e.value, step)
			}
		}
	}

	return nil
}

// visitValues calls do for the scalar values of a document, not for its keys.
func visitValues(node *yaml.Node, do func(*yaml.Node)) {
	if node.Kind == yaml.ScalarNode {
		do(node)
	}

	for i, child := range node.Content {
		if node.Kind != yaml.MappingNode || i%2 == 1 {
			visitValues(child, do)
		}
	}
}

func (s *addressMap) inLab(address netip.Addr) bool { return s.lab.Contains(address) }

// reserve marks the lab's own networks that the stack names as taken, so that none of them replaces another.
func (s *addressMap) reserve(node *yaml.Node) {
	for _, found := range addressText.FindAllString(node.Value, -1) {
		if address, _, ok := parse(found); ok && s.inLab(address) {
			s.taken[netip.PrefixFrom(address, networkBits).Masked()] = true
		}
	}
}

// add maps the network of an address to a free one of the lab's. Text that only mentions addresses, such as a patch,
// maps none: what it means by them is unknown.
func (s *addressMap) add(text string) {
	address, bits, ok := parse(text)
	_, isHost := s.hosts[address]

	if !ok || bits < networkBits || isHost || s.inLab(address) || address.IsUnspecified() || address.As4()[0] >= 224 {
		return
	}

	network := netip.PrefixFrom(address, networkBits).Masked()
	if s.networks[network].IsValid() {
		return
	}

	for third := 1; third < 256; third++ {
		b := s.lab.Addr().As4()
		b[2] = byte(third)

		if free := netip.PrefixFrom(netip.AddrFrom4(b), networkBits); !s.taken[free] {
			s.networks[network], s.taken[free] = free, true

			return
		}
	}
}

// addressText matches IPv4 addresses and networks in text.
var addressText = regexp.MustCompile(`\b\d{1,3}(?:\.\d{1,3}){3}(?:/\d{1,2})?\b`)

func (s *addressMap) rewrite(node *yaml.Node) {
	node.Value = addressText.ReplaceAllStringFunc(node.Value, func(found string) string {
		address, bits, ok := parse(found)
		if !ok || bits < networkBits {
			return found
		}

		suffix := found[len(address.String()):]
		if host, ok := s.hosts[address]; ok && suffix == "" {
			return host.String()
		}

		network, ok := s.networks[netip.PrefixFrom(address, networkBits).Masked()]
		if !ok {
			return found
		}

		b := network.Addr().As4()
		b[3] = address.As4()[3]

		return netip.AddrFrom4(b).String() + suffix
	})
}

// parse reads an IPv4 address, or a network with its prefix length.
func parse(text string) (address netip.Addr, bits int, ok bool) {
	if prefix, err := netip.ParsePrefix(text); err == nil {
		return prefix.Addr(), prefix.Bits(), prefix.Addr().Is4()
	}

	address, err := netip.ParseAddr(text)

	return address, 32, err == nil && address.Is4()
}
