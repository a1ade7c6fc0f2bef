package spec

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"talos-proxmox/internal/systems"
)

// domainForm is that of a DNS domain.
var domainForm = form{serverForm.pattern, "is not a DNS domain; write it as example.org"}

// planMachines judges the pools of machines of no cluster and returns their machines, in order of pool and number.
func (p *planner) planMachines() []Machine {
	var machines []Machine

	seen := map[string]bool{}

	for i, c := range p.config.Machines {
		path := fmt.Sprintf("machines[%d]", i)
		g := machinePool(path, c)

		g.duplicate = seen[c.Name]
		if p.check(path+".name", c.Name, labelForm) && g.duplicate {
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

// machinePrototype is what the machines of a pool have beside their VMs.
func (p *planner) machinePrototype(g *pool, c MachinesConfig) Machine {
	m := Machine{Network: p.machineNetwork(g.path+".network", c), SearchDomain: c.Network.SearchDomain, Protect: c.Protect}

	system := p.classes[g.Template].System
	if system == nil {
		system = &System{}
	}

	if system.OS != string(systems.Windows) { // whose users are called as they like
		p.check(g.path+".user", c.User, userForm)
	}

	m.User, m.SSHKeys = cmp.Or(c.User, system.User, system.Known().User), system.SSHKeys
	if len(c.SSHKeys) > 0 {
		m.SSHKeys = p.sshKeys(g.path+".sshKeys", c.SSHKeys)
	}

	m.Password = p.password(g.path+".password", c.Password)
	if len(m.SSHKeys) == 0 && m.Password == "" && c.Count > 0 {
		p.warn("%s: has neither sshKeys nor a password, so that no one can log in to its machines; set one of them", g.path)
	}

	return m
}

// password judges a password, which no problem shows.
func (p *planner) password(path, text string) string {
	if text == "" {
		return ""
	}

	stored := p.options.Encrypted != nil || p.options.Blinded // it is known how the stack's file stores it
	if stored && !p.secrets.hold(path) {
		p.problems.Add(
			path, nil, "is stored in plain text; store it encrypted: pulumi config set --secret --path 'talos-proxmox:%s'", path,
		)
	}

	if !p.unknown(path) && strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		p.problems.Add(path, nil, "has a line break or another character that cannot be typed; choose another")
	}

	return text
}

// machineNetwork judges the network of a pool's first cards.
func (p *planner) machineNetwork(path string, c MachinesConfig) Network {
	n := c.Network

	network, _ := p.planNetwork(path, c.Name, NetworkConfig{
		CIDR: n.CIDR, Gateway: n.Gateway, Bridge: n.Bridge, VLAN: n.VLAN, MTU: n.MTU, DNS: n.DNS, Addressing: n.Addressing,
	})

	p.check(path+".searchDomain", n.SearchDomain, domainForm)

	if len(n.DNS) == 0 && c.Count > 0 && !p.problems.Has(path+".dns") {
		p.warn("%s.dns: is not set, so that machines get the name servers of the Proxmox host that they start on: where these change, "+
			"cloud-init takes a machine for a new one at its next start; set them", path)
	}

	if network.DHCP {
		for key, stated := range map[string]bool{
			".network.cidr": n.CIDR != "", ".network.gateway": n.Gateway != "",
			".firstAddress": c.FirstAddress != "", ".addresses": len(c.Addresses) > 0,
		} {
			if stated {
				p.problems.Add(strings.TrimSuffix(path, ".network")+key, nil,
					"is set, and addresses come by DHCP; remove it, or network.addressing")
			}
		}
	} else if n.CIDR == "" && !p.problems.Has(path) {
		p.problems.Add(path+".cidr", nil, "is missing; set it, such as cidr: 10.0.0.0/24, or addressing: dhcp")
	}

	return network
}

// checkMachinePool judges what concerns machines of no cluster only.
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
			p.problems.Add(at, d.Interface, "is the place of the system disk; choose another from virtio1 to virtio15")
		case hardware.CloudInitDrive:
			p.problems.Add(at, d.Interface, "is the place of the cloud-init drive; choose another from virtio1 to virtio15")
		}
	}

	for key, single := range g.Nodes {
		if g.network.DHCP && single.Address != "" {
			p.problems.Add(join(g.path+".nodes", key)+".address", single.Address,
				"is set, and addresses come by DHCP; remove it, or network.addressing")
		}
	}
}
