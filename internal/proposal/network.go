package proposal

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"talos-proxmox/internal/spec"
)

// chooseNetwork asks for the network of the machines.
func (p *planner) chooseNetwork() {
	p.chooseBridge()
	p.chooseVLAN()
	p.chooseCIDR()
	p.chooseGateway()
	p.chooseDNS()
	p.chooseAddressRange()
}

// chooseBridge asks for a bridge that all hosts have.
func (p *planner) chooseBridge() {
	var names []string

	for i, h := range p.hosts {
		var here []string

		for _, b := range h.Bridges {
			if i == 0 || slices.Contains(names, b.Name) {
				here = append(here, b.Name)
			}
		}

		names = here
	}

	// The one with the router is first, then in the order of names.
	slices.SortStableFunc(names, func(a, b string) int {
		return compareBool(p.bridge(b).Gateway != "", p.bridge(a).Gateway != "")
	})

	q := Question{
		Flag: "bridge", Text: "Bridge of the machines",
		Missing: "no bridge is on all of these hosts, or the credentials may see none; name the one of the machines' network",
	}
	if len(names) > 0 {
		q.Default = names[0]
	}

	p.ask(q, func(text string) error {
		if len(names) > 0 && !slices.Contains(names, text) {
			return fmt.Errorf("is not a bridge of all hosts, which have %s", strings.Join(names, ", "))
		}

		p.stack.Network.Bridge = text

		return nil
	})
}

// bridge returns a bridge of the hosts: the first one that has an address, else any.
func (p *planner) bridge(name string) (found Bridge) {
	for _, h := range p.hosts {
		for _, b := range h.Bridges {
			if b.Name == name && (found.Name == "" || found.CIDR == "" || found.Gateway == "" && b.Gateway != "") {
				found = b
			}
		}
	}

	return found
}

// chooseVLAN takes the VLAN of the flag.
func (p *planner) chooseVLAN() {
	text, given := p.Given["vlan"]
	if !given {
		return
	}

	vlan, err := strconv.Atoi(text)
	if err != nil || vlan < 1 || vlan > 4094 {
		p.problems.Add("--vlan", text, "is not a VLAN; write a number from 1 to 4094")
	}

	p.stack.Network.VLAN = vlan
}

// hostsBridge returns the bridge of the machines, if they are in the hosts' network; none in a VLAN.
func (p *planner) hostsBridge() Bridge {
	if p.stack.Network.VLAN != 0 {
		return Bridge{}
	}

	return p.bridge(p.stack.Network.Bridge)
}

func (p *planner) chooseCIDR() {
	q := Question{
		Flag: "cidr", Text: "Network of the machines", Missing: "the hosts have no address on the bridge; set the network, such as 10.0.0.0/24",
	}
	if prefix, err := netip.ParsePrefix(p.hostsBridge().CIDR); err == nil && prefix.Addr().Is4() {
		q.Default = prefix.Masked().String()
	}

	p.ask(q, func(text string) error {
		prefix, err := netip.ParsePrefix(text)
		if err != nil || !prefix.Addr().Is4() || prefix != prefix.Masked() || prefix.Bits() < 8 || prefix.Bits() > 30 {
			return errors.New("is not an IPv4 network; write it as 10.0.0.0/24")
		}

		p.stack.Network.CIDR = prefix

		return nil
	})
}

func (p *planner) chooseGateway() {
	p.ask(Question{
		Flag: "gateway", Text: "Router of the machines, or none", Default: p.hostsBridge().Gateway,
		Missing: "the hosts have no router on the bridge; set that of the machines' network, or none if they reach only their own network",
	}, func(text string) error {
		if text == none {
			p.decide("router", none, "the machines reach only their own network, and no registry outside of it")

			return nil
		}

		network, within := p.stack.Network.CIDR, "the network"
		if network.IsValid() {
			within = network.String()
		}

		address, err := netip.ParseAddr(text)
		if err != nil || !address.Is4() || network.IsValid() && !network.Contains(address) {
			return fmt.Errorf("is not an address in %s; write that of the router, or none", within)
		}

		p.stack.Network.Gateway = address

		return nil
	})
}

func (p *planner) chooseDNS() {
	const ofTalos = "default"

	q := Question{Flag: "dns", Text: "Name servers of the machines, or " + ofTalos + " for Talos' own", Default: ofTalos}

	for _, h := range p.hosts {
		if len(h.DNS) > 0 {
			q.Default = joined(h.DNS)

			break
		}
	}

	p.ask(q, func(text string) error {
		p.stack.Network.DNS = nil

		for _, part := range splitList(text) {
			address, err := netip.ParseAddr(part)

			switch {
			case text == ofTalos:
				return nil
			case err != nil || !address.Is4():
				return fmt.Errorf("has %q, which is not an IPv4 address; write name servers as 1.1.1.1,9.9.9.9, or %s", part, ofTalos)
			}

			p.stack.Network.DNS = append(p.stack.Network.DNS, address)
		}

		return nil
	})
}

func joined(addresses []netip.Addr) string {
	texts := make([]string, 0, len(addresses))
	for _, a := range addresses {
		texts = append(texts, a.String())
	}

	return strings.Join(texts, ",")
}

// Places of machines in the range of addresses: the first is the virtual IP's, and pools have room to grow. In a range
// that is too small for that, one follows the other.
const (
	roomyRange         = 40
	placeControlPlanes = 1
	placeGPUWorkers    = 10
	placeWorkers       = 20
)

// chooseAddressRange asks for addresses that nobody gives out, and gives them to the machines.
func (p *planner) chooseAddressRange() {
	taken, needed := p.takenAddresses(), p.neededAddresses()

	q := Question{
		Flag: "addresses", Text: fmt.Sprintf("Addresses that no DHCP server gives out, at least %d: FIRST-LAST", needed),
		Missing: fmt.Sprintf("there is no network with %d addresses in a row that nothing has; set them as 10.0.0.10-10.0.0.49", needed),
	}
	if first, last, found := freeRange(p.stack.Network.CIDR, taken, needed); found {
		q.Default = first.String() + "-" + last.String()
	}

	p.ask(q, func(text string) error {
		before, after, _ := strings.Cut(text, "-")
		first, firstErr := netip.ParseAddr(strings.TrimSpace(before))
		last, lastErr := netip.ParseAddr(strings.TrimSpace(after))
		network := p.stack.Network.CIDR

		switch {
		case firstErr != nil || lastErr != nil || !first.Is4() || !last.Is4() || last.Less(first):
			return errors.New("is not a range of addresses; write it as 10.0.0.10-10.0.0.49")
		case network.IsValid() && (!network.Contains(first) || !network.Contains(last)):
			return fmt.Errorf("is not in %s; write a range in it", network)
		case spec.AddressOffset(first, last)+1 < needed:
			return fmt.Errorf("has %d addresses, and the cluster needs %d; write a longer range", spec.AddressOffset(first, last)+1, needed)
		}

		for _, address := range slices.SortedFunc(maps.Keys(taken), netip.Addr.Compare) {
			if !address.Less(first) && !last.Less(address) {
				return fmt.Errorf("has %s, which is that of %s; write a range without it", address, taken[address])
			}
		}

		p.placeMachines(first, last)

		return nil
	})
}

// takenAddresses returns who has which address in the network.
func (p *planner) takenAddresses() map[netip.Addr]string {
	network, taken := p.stack.Network, map[netip.Addr]string{}
	take := func(address netip.Addr, owner string) {
		if network.CIDR.IsValid() && network.CIDR.Contains(address) {
			taken[address] = cmp.Or(taken[address], owner)
		}
	}

	for _, h := range p.inventory.Hosts {
		take(h.Address, "the host "+h.Name)

		for _, b := range h.Bridges {
			if prefix, err := netip.ParsePrefix(b.CIDR); err == nil {
				take(prefix.Addr(), "the host "+h.Name)
			}
		}
	}

	for _, h := range p.hosts { // with the user's addresses
		take(h.Address, "the host "+h.Name)
	}

	take(network.Gateway, "the router")

	for _, address := range network.DNS {
		take(address, "a name server")
	}

	for _, guest := range p.inventory.Guests {
		for _, a := range guest.Addresses {
			take(a.Address, guest.Title())
		}
	}

	return taken
}

// neededAddresses returns how many addresses the cluster needs.
func (p *planner) neededAddresses() int {
	count := placeControlPlanes + p.stack.ControlPlanes.Count
	for _, pool := range p.stack.GPUWorkers {
		count += pool.Count
	}

	if p.stack.Workers != nil {
		count += p.stack.Workers.Count
	}

	return count
}

// freeRange returns a range of a network that nothing has: of forty addresses if there is one, otherwise of as many as
// are needed. It begins with a multiple of ten if it can: many DHCP servers give out the addresses from .100.
func freeRange(network netip.Prefix, taken map[netip.Addr]string, needed int) (first, last netip.Addr, found bool) {
	if !network.IsValid() {
		return first, last, false
	}

	size := 1 << (32 - network.Bits())

	for _, try := range []struct{ count, step int }{{max(roomyRange, needed), 10}, {needed, 10}, {needed, 1}} {
		for start := try.step; start+try.count < size && start < 1<<16; start += try.step { // the last is for broadcasts
			first, last = spec.AddOffset(network.Addr(), start), spec.AddOffset(network.Addr(), start+try.count-1)

			if !hasAny(taken, first, last) {
				return first, last, true
			}
		}
	}

	return first, last, false
}

func hasAny(taken map[netip.Addr]string, first, last netip.Addr) bool {
	for address := range taken {
		if !address.Less(first) && !last.Less(address) {
			return true
		}
	}

	return false
}

// placeMachines gives the addresses of a range to the virtual IP and the pools.
func (p *planner) placeMachines(first, last netip.Addr) {
	s := p.stack
	s.Network.First, s.Network.Last = first, last

	if s.ControlPlanes.Count > 1 {
		s.Network.VIP = first
	}

	s.ControlPlanes.FirstAddress = spec.AddOffset(first, placeControlPlanes)
	next := placeControlPlanes + s.ControlPlanes.Count

	gpuWorkers := 0
	for _, pool := range s.GPUWorkers {
		gpuWorkers += pool.Count
	}

	workers := 0
	if s.Workers != nil {
		workers = s.Workers.Count
	}

	roomy := gpuWorkers <= placeWorkers-placeGPUWorkers && placeWorkers+workers <= spec.AddressOffset(first, last)+1
	if roomy {
		next = placeGPUWorkers
	}

	for i := range s.GPUWorkers {
		s.GPUWorkers[i].FirstAddress = spec.AddOffset(first, next)
		next += s.GPUWorkers[i].Count
	}

	if roomy {
		next = placeWorkers
	}

	if s.Workers != nil {
		s.Workers.FirstAddress = spec.AddOffset(first, next)
	}
}
