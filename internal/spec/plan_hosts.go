package spec

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// planHosts judges the hosts and returns those that have their own name, in order of names.
func (p *planner) planHosts() []Host {
	var hosts []Host

	numbers, addresses := map[int]string{}, map[string]string{}

	for i, c := range p.config.Hosts {
		path := fmt.Sprintf("hosts[%d]", i)
		h := Host{Name: c.Name, Path: path, Cores: c.Capacity.Cores, MemoryMiB: c.Capacity.MemoryMiB}
		h.SSH = p.ssh(path+".ssh", c.SSH)
		h.Number = p.hostNumber(path, c, numbers)
		h.Prep = c.Prep
		h.Prep.CheckZFSArc(path+".prep.zfsArcMaxGiB", p.problems)

		h.GPUs, h.gpuPaths = p.planGPUs(path+".gpus", c)
		if address, ok := p.address(path+".address", c.Address); ok {
			h.Address = address
			if other, taken := addresses[c.Address]; taken {
				p.problems.Add(path+".address", c.Address, "is the address of %s too; set each host's own", other)
			}

			addresses[c.Address] = c.Name
			p.addresses.take(address, claim{owner: "host " + c.Name, shared: true})
		}

		if !p.check(path+".name", c.Name, hostForm) {
			continue
		}

		if _, taken := p.hosts[c.Name]; taken {
			p.problems.Add(path+".name", c.Name, "is the name of another host already; remove one of the two")

			continue
		}

		p.hosts[c.Name] = h
		switch {
		case h.Prep != nil:
			p.needShell(c.Name, "the host is prepared over SSH")
		case len(c.GPUs) > 0:
			p.needShell(c.Name, "a host with GPUs is looked at over SSH")
		}

		hosts = append(hosts, h)
	}

	slices.SortFunc(hosts, func(a, b Host) int { return strings.Compare(a.Name, b.Name) })

	return hosts
}

func (p *planner) ssh(path string, c SSH) SSH {
	p.check(path+".user", c.User, userForm)

	if c.HostKey == "" {
		return c
	}

	key, ok := normalKey(c.HostKey)
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

// largestNumber is the largest a host can have, stated or not; numbers beyond are dates and the like.
const largestNumber = 9999

// hostNumber returns the number stated or at the end of the host's name, which is never a neighbour's business.
func (p *planner) hostNumber(path string, c HostConfig, taken map[int]string) int {
	number := c.Number
	if number == 0 {
		digits := c.Name[len(strings.TrimRight(c.Name, "0123456789")):]

		stated, err := strconv.Atoi(digits)
		if err != nil || stated > largestNumber {
			if c.Name != "" && !p.problems.Has(path+".number") {
				p.problems.Add(path+".number", nil,
					"does not follow from the name %q, which does not end with a small number; set one that no other host has",
					p.shown(path+".name", c.Name))
			}

			return 0
		}

		number = stated
	}

	if other, ok := taken[number]; ok && other != c.Name {
		p.problems.Add(path+".number", number, "is the number of %s too; set one that no other host has", other)
	}

	taken[number] = c.Name

	return number
}

// needShell reports a host whose shell is needed but whose key is not set.
func (p *planner) needShell(host, why string) {
	h := p.hosts[host]
	if p.options.Unconnected || h.SSH.HostKey != "" || h.SSH.AcceptAnyHostKey || p.problems.Has(h.Path+
		".ssh") {
		return
	}

	p.problems.Add(h.Path+".ssh.hostKey", nil,
		"is missing, but %s; set what `ssh-keyscan -t ed25519 %s` prints after the address, or acceptAnyHostKey: true", why,
		h.Address)
}
