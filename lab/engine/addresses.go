package engine

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v4"
)

// standIns maps the addresses of a stack to a lab's: a host's to that of the lab's host of the same name, and each
// network of up to 256 addresses to one of the lab's, where every address keeps its last byte. The first cluster's is
// the lab's machine network.
type standIns struct {
	lab      netip.Prefix // the lab's /16; its addresses stay as they are
	hosts    map[netip.Addr]netip.Addr
	networks map[netip.Prefix]netip.Prefix // /24 → /24
	taken    map[netip.Prefix]bool         // the lab's networks that are in use
}

const networkBits = 24

// mapAddresses brings a stack to the addresses of a lab with this network, such as "127.20".
func (f *stackFile) mapAddresses(network string, hosts map[netip.Addr]netip.Addr) error {
	lab, err := netip.ParsePrefix(network + ".0.0/16")
	if err != nil {
		return fmt.Errorf("unable to read the lab's network %q: %w", network, err)
	}

	s := standIns{lab: lab, hosts: hosts, networks: map[netip.Prefix]netip.Prefix{}, taken: map[netip.Prefix]bool{}}
	s.taken[netip.PrefixFrom(lab.Addr(), networkBits)] = true // of the lab's hosts

	for _, e := range f.entries() {
		eachText(e.value, s.keep)
	}

	for _, what := range []string{"cluster", "machines"} {
		for _, of := range f.list(strings.TrimSuffix(what, "s") + "s") {
			cidr := text(get(of, "network"), "cidr")
			if prefix, err := netip.ParsePrefix(cidr); err == nil && prefix.Bits() < networkBits && !s.isLabs(prefix.Addr()) {
				return fmt.Errorf(
					"%s %s has network %s, and the lab stands in for networks of up to 256 addresses (/%d): set a part of it to try the stack here",
					what, text(of, "name"), cidr, networkBits,
				)
			}

			s.learn(cidr)
		}
	}

	for _, step := range []func(*yaml.Node){func(n *yaml.Node) { s.learn(n.Value) }, s.rewrite} {
		for _, e := range f.entries() {
			if strings.HasPrefix(e.key, namespace) {
				eachText(e.value, step)
			}
		}
	}

	return nil
}

// eachText visits the values of a document, not its keys.
func eachText(node *yaml.Node, do func(*yaml.Node)) {
	if node.Kind == yaml.ScalarNode {
		do(node)
	}

	for i, child := range node.Content {
		if node.Kind != yaml.MappingNode || i%2 == 1 {
			eachText(child, do)
		}
	}
}

func (s *standIns) isLabs(address netip.Addr) bool { return s.lab.Contains(address) }

// keep notes the lab's own networks that the stack names, so that none of them stands in for another.
func (s *standIns) keep(node *yaml.Node) {
	for _, found := range addressText.FindAllString(node.Value, -1) {
		if address, _, ok := parse(found); ok && s.isLabs(address) {
			s.taken[netip.PrefixFrom(address, networkBits).Masked()] = true
		}
	}
}

// learn gives the network of an address a stand-in. Text that only mentions addresses, such as a patch, is none: what
// it means by them is not known.
func (s *standIns) learn(text string) {
	address, bits, ok := parse(text)
	_, isHost := s.hosts[address]

	if !ok || bits < networkBits || isHost || s.isLabs(address) || address.IsUnspecified() || address.As4()[0] >= 224 {
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

// addressText finds IPv4 addresses and networks in text.
var addressText = regexp.MustCompile(`\b\d{1,3}(?:\.\d{1,3}){3}(?:/\d{1,2})?\b`)

func (s *standIns) rewrite(node *yaml.Node) {
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

// parse reads an IPv4 address, or a network with its bits.
func parse(text string) (address netip.Addr, bits int, ok bool) {
	if prefix, err := netip.ParsePrefix(text); err == nil {
		return prefix.Addr(), prefix.Bits(), prefix.Addr().Is4()
	}

	address, err := netip.ParseAddr(text)

	return address, 32, err == nil && address.Is4()
}
