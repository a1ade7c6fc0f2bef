package spec

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// planHosts plans the hosts, sorted by name; it leaves out hosts with invalid or duplicate names.
func (p *planner) planHosts() []Host {
	var hosts []Host

	numbers, addresses := map[int]string{}, map[string]string{}

	for i, c := range p.config.Hosts {
		path := fmt.Sprintf("hosts[%d]", i)
		h := Host{Name: c.Name, Path: path, Cores: c.Capacity.Cores, MemoryMiB: c.Capacity.MemoryMiB}
		h.SSH = p.planSSH(path+".ssh", c.SSH)
		h.Number = p.hostNumber(path, c, numbers)
		h.Prep = c.Prep
		h.Prep.CheckZFSArc(path+".prep.zfsArcMaxGiB", p.problems)

		p.planDevices(&h, c)

		if address, ok := p.parseAddress(path+".address", c.Address); ok {
			h.Address = address
			if other, taken := addresses[c.Address]; taken {
				p.problems.Add(path+".address", c.Address, "is the address of %s too; set each host's own", other)
			}

			addresses[c.Address] = c.Name
			p.addresses.take(address, claim{owner: "host " + c.Name, shared: true})
		}

		if !p.checkFormat(path+".name", c.Name, hostFormat) {
			continue
		}

		if _, taken := p.hosts[c.Name]; taken {
			p.problems.Add(path+".name", c.Name, "is the name of another host already; remove one of the two")

			continue
		}

		p.hosts[c.Name] = h
		switch {
		case h.Prep != nil:
			p.requireSSH(c.Name, "the host is prepared over SSH")
		case len(c.GPUs) > 0:
			p.requireSSH(c.Name, "a host with GPUs is checked over SSH")
		case len(c.Devices) > 0:
			p.requireSSH(c.Name, "a host with devices for machines is checked over SSH")
		}

		hosts = append(hosts, h)
	}

	slices.SortFunc(hosts, func(a, b Host) int { return strings.Compare(a.Name, b.Name) })

	return hosts
}

func (p *planner) planSSH(path string, c SSH) SSH {
	p.checkFormat(path+".user", c.User, userFormat)

	if c.HostKey == "" {
		return c
	}

	key, ok := parsePublicKey(c.HostKey)
	if !ok {
		p.problems.Add(
			path+".hostKey", c.HostKey,
			"is not a public key; write its type and base64 as ssh-keyscan prints them after the host's name",
		)
	}

	if c.AcceptAnyHostKey {
		p.problems.Add(path+".acceptAnyHostKey", true, "is set together with hostKey; remove one of the two")
	}

	c.HostKey = key

	return c
}

// maxHostNumber is the largest number of a host; larger numbers at the end of a name are dates and the like.
const maxHostNumber = 9999

// hostNumber returns the configured number, or the one at the end of the host's name, so that it never depends on other
// hosts.
func (p *planner) hostNumber(path string, c HostConfig, taken map[int]string) int {
	number := c.Number
	if number == 0 {
		digits := c.Name[len(strings.TrimRight(c.Name, "0123456789")):]

		suffix, err := strconv.Atoi(digits)
		if err != nil || suffix > maxHostNumber {
			if c.Name != "" && !p.problems.Has(path+".number") {
				p.problems.Add(path+".number", nil,
					"cannot be derived from the name %q, which does not end with a small number; set one that no other host has",
					p.redacted(path+".name", c.Name))
			}

			return 0
		}

		number = suffix
	}

	if other, ok := taken[number]; ok && other != c.Name {
		p.problems.Add(path+".number", number, "is the number of %s too; set one that no other host has", other)
	}

	taken[number] = c.Name

	return number
}

// requireSSH reports a host that needs SSH but has no host key.
func (p *planner) requireSSH(host, why string) {
	h := p.hosts[host]
	if p.options.Offline || h.SSH.HostKey != "" || h.SSH.AcceptAnyHostKey || p.problems.Has(h.Path+".ssh") {
		return
	}

	p.addMissing(h.Path+".ssh.hostKey",
		"is missing, but %s; set what `ssh-keyscan -t ed25519 %s` prints after the address, or acceptAnyHostKey: true", why,
		h.Address)
}
