package spec

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"talos-proxmox/internal/systems"
)

var domainFormat = format{serverFormat.pattern, "is not a DNS domain; write it as example.org"}

// planMachines plans the pools of plain machines, and returns the machines in order of pool and number.
func (p *planner) planMachines() []Machine {
	var machines []Machine

	seen := map[string]bool{}

	for i, c := range p.config.Machines {
		path := fmt.Sprintf("machines[%d]", i)
		g := machinePool(path, c)

		g.duplicate = seen[c.Name]
		if p.checkFormat(path+".name", c.Name, labelFormat) && g.duplicate {
			p.problems.Add(path+".name", c.Name, "is the name of another pool of machines already; choose another one")
		}

		seen[c.Name] = true
		machines = append(machines, p.planMachinePool(g, c)...)
	}

	slices.SortStableFunc(machines, func(a, b Machine) int {
		return cmp.Or(strings.Compare(a.Pool, b.Pool), cmp.Compare(a.Index, b.Index))
	})

	return machines
}

func machinePool(path string, c MachinesConfig) *pool {
	g := &pool{
		PoolConfig: PoolConfig{Template: c.Template, VMPoolConfig: c.VMPoolConfig, Nodes: map[string]NodeConfig{}},
		path:       path,
		linked:     c.Clone == "linked",
		name:       c.Name,
		kind:       RangeMachines,
		count:      c.Count,
		placement:  c.Placement,
	}
	for key, single := range c.Nodes {
		g.Nodes[key] = NodeConfig{VMConfig: single}
	}

	return g
}

func (p *planner) planMachinePool(g *pool, c MachinesConfig) []Machine {
	prototype := p.machinePrototype(g, c)
	g.network = prototype.Network

	nodes := p.planPool(g)
	p.pools = append(p.pools, g)

	machines := make([]Machine, 0, len(nodes))
	for _, n := range nodes {
		m := prototype
		m.VM = n.VM
		machines = append(machines, m)
	}

	return machines
}

// machinePrototype returns a machine of the pool without its VM.
func (p *planner) machinePrototype(g *pool, c MachinesConfig) Machine {
	m := Machine{
		Network: p.planMachineNetwork(g.path+".network", c), SearchDomain: c.Network.SearchDomain, Protect: c.Protect,
		Backup: c.Backup,
	}

	system := p.classes[g.Template].System
	if system == nil {
		system = &System{}
	}

	if system.OS != string(systems.Windows) { // which has no such restriction
		p.checkFormat(g.path+".user", c.User, userFormat)
	}

	m.User, m.SSHKeys = cmp.Or(c.User, system.User, system.Definition().User), system.SSHKeys
	if len(c.SSHKeys) > 0 {
		m.SSHKeys = p.checkSSHKeys(g.path+".sshKeys", c.SSHKeys)
	}

	m.Password = p.checkPassword(g.path+".password", c.Password)
	if len(m.SSHKeys) == 0 && m.Password == "" && c.Count > 0 {
		p.warn("%s: has neither sshKeys nor a password, so that no one can log in to its machines; set one of them", g.path)
	}

	return m
}

// checkPassword checks a password, which no problem shows.
func (p *planner) checkPassword(path, text string) string {
	if text == "" {
		return ""
	}

	storageKnown := p.options.Encrypted != nil || p.options.Blinded
	if storageKnown && !p.secrets.contains(path) {
		p.problems.Add(
			path, nil, "is stored in plain text; store it encrypted: pulumi config set --secret --path 'talos-proxmox:%s'", path,
		)
	}

	if !p.isUndecrypted(path) && strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		p.problems.Add(path, nil, "has a line break or another character that cannot be typed; choose another")
	}

	return text
}

// planMachineNetwork plans the network of a pool's first cards.
func (p *planner) planMachineNetwork(path string, c MachinesConfig) Network {
	n := c.Network

	network := p.planNetwork(path, c.Name, NetworkConfig{
		CIDR: n.CIDR, Gateway: n.Gateway, IPv6: n.IPv6, Bridge: n.Bridge, VLAN: n.VLAN, MTU: n.MTU, DNS: n.DNS,
		Addressing: n.Addressing,
	})

	p.checkFormat(path+".searchDomain", n.SearchDomain, domainFormat)

	if len(n.DNS) == 0 && c.Count > 0 && !p.problems.Has(path+".dns") {
		p.warn("%s.dns: is not set, so that machines get the name servers of the Proxmox host that they start on: where these change, "+
			"cloud-init takes a machine for a new one at its next start; set them", path)
	}

	if network.DHCP {
		for key, isSet := range map[string]bool{
			".network.cidr": n.CIDR != "", ".network.gateway": n.Gateway != "", ".network.ipv6": n.IPv6 != nil,
			".firstAddress": c.FirstAddress != "", ".addresses": len(c.Addresses) > 0,
		} {
			if isSet {
				p.problems.Add(strings.TrimSuffix(path, ".network")+key, nil,
					"is set although addresses come from DHCP; remove it, or network.addressing")
			}
		}
	} else if n.CIDR == "" && !p.problems.Has(path) {
		p.addMissing(path+".cidr", "is missing; set it, such as cidr: 10.0.0.0/24, or addressing: dhcp")
	}

	return network
}

// checkMachinePool checks what concerns only plain machines.
func (p *planner) checkMachinePool(g *pool) {
	template, known := p.classes[g.Template]
	if !known {
		return
	}

	if template.System == nil {
		p.problems.Add(
			g.path+".template", g.Template, "is a template of Talos, whose machines belong to clusters; set one of another system, "+
				"or put the machines under clusters[].workers",
		)

		return
	}

	hardware := template.System.Hardware

	for i, d := range g.ExtraDisks {
		at := fmt.Sprintf("%s.extraDisks[%d].interface", g.path, i)

		switch d.Interface {
		case hardware.SystemDisk:
			p.problems.Add(at, d.Interface, "is the interface of the system disk; choose another from virtio1 to virtio15")
		case hardware.CloudInitDrive:
			p.problems.Add(at, d.Interface, "is the interface of the cloud-init drive; choose another from virtio1 to virtio15")
		}
	}

	for key, single := range g.Nodes {
		if g.network.DHCP && single.Address != "" {
			p.problems.Add(joinPath(g.path+".nodes", key)+".address", single.Address,
				"is set although addresses come from DHCP; remove it, or network.addressing")
		}
	}
}
