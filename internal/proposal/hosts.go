package proposal

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// chooseHosts asks for the hosts, and for the addresses that Proxmox does not say.
func (p *planner) chooseHosts() {
	var online, offline []string

	for _, h := range p.inventory.Hosts {
		if h.Online {
			online = append(online, h.Name)
		} else {
			offline = append(offline, h.Name)
		}
	}

	p.ask(Question{
		Flag: "hosts", Text: "Hosts to use", Default: strings.Join(online, ","),
		Missing: "Proxmox says of no host that it is online; name hosts when one is",
	}, func(text string) error {
		p.hosts = nil

		for _, name := range splitList(text) {
			h, exists := p.inventory.host(name)

			switch {
			case !exists:
				return fmt.Errorf("names %s, which is not in the cluster; it has %s", name, strings.Join(append(online, offline...), ", "))
			case !h.Online:
				return fmt.Errorf("names %s, which is offline; online are %s", name, strings.Join(online, ", "))
			case !slices.ContainsFunc(p.hosts, func(o Host) bool { return o.Name == name }):
				p.hosts = append(p.hosts, h)
			}
		}

		return nil
	})

	slices.SortFunc(p.hosts, func(a, b Host) int { return strings.Compare(a.Name, b.Name) })
	p.chooseAddresses()

	numbers := hostNumbers(p.hosts)

	for _, h := range p.hosts {
		memory, how := p.memoryFor(h)
		p.stack.Hosts = append(p.stack.Hosts, StackHost{
			Name: h.Name, Number: numbers[h.Name], Address: h.Address, Title: h.title(),
			Cores: h.Cores, MemoryMiB: memory, Memory: how,
		})
	}

	if len(p.hosts) > 0 && len(offline) > 0 {
		p.decide("left out", strings.Join(offline, ", "), "offline")
	}
}

// chooseAddresses completes the addresses of hosts: that on the bridge with the router, that of the endpoint for a
// single host, or the user's.
func (p *planner) chooseAddresses() {
	var unknown []string

	endpoint, _ := netip.ParseAddrPort(strings.Trim(strings.TrimPrefix(p.inventory.Endpoint, "https://"), "/"))

	for i, h := range p.hosts {
		for _, b := range h.Bridges {
			if prefix, err := netip.ParsePrefix(b.CIDR); err == nil && !h.Address.IsValid() && b.Gateway != "" {
				p.hosts[i].Address = prefix.Addr()
			}
		}

		if !p.hosts[i].Address.Is4() && len(p.inventory.Hosts) == 1 {
			p.hosts[i].Address = endpoint.Addr()
		}

		if !p.hosts[i].Address.Is4() {
			unknown = append(unknown, h.Name)
		}
	}

	if len(unknown) == 0 {
		return
	}

	p.ask(Question{
		Flag: "host-addresses", Text: "Addresses of " + strings.Join(unknown, ", ") + " (" + unknown[0] + "=10.0.0.2,…)",
		Missing: "Proxmox does not say the IPv4 address of " + strings.Join(unknown, ", ") + "; set " + unknown[0] + "=10.0.0.2",
	}, func(text string) error {
		pairs := splitPairs(text)

		for i, h := range p.hosts {
			if !slices.Contains(unknown, h.Name) {
				continue
			}

			address, err := netip.ParseAddr(pairs[h.Name])
			if err != nil || !address.Is4() {
				return fmt.Errorf("does not have the IPv4 address of %s; write it as %s=10.0.0.2", h.Name, h.Name)
			}

			p.hosts[i].Address = address
		}

		return nil
	})
}

// maxNumber is the largest number of a host whose templates, also those for GPUs, have VMIDs of the default range.
const maxNumber = 49

// hostNumbers returns the numbers of hosts whose name does not end with a usable one of their own.
func hostNumbers(hosts []Host) map[string]int {
	numbers, taken := map[string]int{}, map[int]bool{}

	var without []string

	for _, h := range hosts {
		number, err := strconv.Atoi(h.Name[len(strings.TrimRight(h.Name, "0123456789")):])
		if err != nil || number < 1 || number > maxNumber || taken[number] {
			without = append(without, h.Name)
		} else {
			taken[number] = true
		}
	}

	next := 1

	for _, name := range without {
		for taken[next] {
			next++
		}

		numbers[name], taken[next] = next, true
	}

	return numbers
}

// title describes the size of a host.
func (h Host) title() string {
	text := "cores and memory unknown"
	if h.Cores > 0 && h.MemoryMiB > 0 {
		text = fmt.Sprintf("%d cores, %d GiB", h.Cores, gibibytes(h.MemoryMiB))
	}

	return text
}

// gibibytes returns MiB in GiB, rounded.
func gibibytes(mib int) int { return (mib + 512) / 1024 }

// memoryFor returns the memory of a host for machines of the stack in MiB, and how it was calculated; 0 = unknown.
func (p *planner) memoryFor(h Host) (memory int, how string) {
	if h.MemoryMiB == 0 {
		return 0, ""
	}

	// Proxmox itself, and ZFS' cache, which prep limits to a tenth.
	own := max(4096, h.MemoryMiB/10)
	how = fmt.Sprintf("%d GiB less %d for the host", gibibytes(h.MemoryMiB), gibibytes(own))

	for _, s := range h.Storages {
		if s.Type == "zfspool" {
			cache := min(h.MemoryMiB/10, 16384)
			own += cache
			how += fmt.Sprintf(" and %d for ZFS' cache", gibibytes(cache))

			break
		}
	}

	guests, count := p.inventory.guestMemoryMiB(h.Name)
	if count > 0 {
		how += fmt.Sprintf(" and %d for the %d guests that run", gibibytes(guests), count)
	}

	return max(0, h.MemoryMiB-own-guests) / 1024 * 1024, how
}
