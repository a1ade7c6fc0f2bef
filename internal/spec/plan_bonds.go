package spec

import (
	"fmt"
	"slices"
	"strings"
)

// members returns the indexes of the additional network devices in a bond.
func (g *pool) members(bond string) (list []int) {
	for i, c := range g.ExtraNICs {
		if c.Bond == bond {
			list = append(list, i)
		}
	}

	return list
}

// bondMTU returns the MTU of a bond: its own, otherwise the smallest of its devices; 0 = Linux' own.
func (g *pool) bondMTU(c BondConfig) int {
	if c.MTU != 0 {
		return c.MTU
	}

	smallest := 0
	for _, i := range g.members(c.Name) {
		if mtu := g.ExtraNICs[i].MTU; mtu != 0 && (smallest == 0 || mtu < smallest) {
			smallest = mtu
		}
	}

	return smallest
}

// hashModes and lacpModes are the modes of bonds that a setting is for.
var (
	hashModes = []string{"balance-xor", "balance-tlb", "802.3ad"}
	lacpModes = []string{"802.3ad"}
)

// planBonds adds the bonds to the pool's machines.
func (p *planner) planBonds(g *pool) {
	for j, c := range g.Bonds {
		at := fmt.Sprintf("%s.bonds[%d]", g.path, j)
		p.checkBond(at, g, j)

		for i, planned := range p.planLink(at, g, c.LinkConfig, g.links) {
			g.nodes[i].Bonds = append(g.nodes[i].Bonds, Bond{
				Name: c.Name, Mode: c.Mode, MIIMon: c.MIIMon, XmitHashPolicy: c.XmitHashPolicy, LACPRate: c.LACPRate,
				MTU: g.bondMTU(c), Address: planned.address, NoAddress: planned.noAddress, RouteMetric: c.RouteMetric,
				Routes: planned.routes,
			})
		}
	}
}

func (p *planner) checkBond(at string, g *pool, index int) {
	c := g.Bonds[index]
	isNamed := func(o BondConfig) bool { return o.Name == c.Name }

	switch {
	case !p.checkFormat(at+".name", c.Name, bondFormat):
	case strings.HasPrefix(c.Name, "eth") || strings.HasPrefix(c.Name, "en") || c.Name == "lo":
		p.problems.Add(at+".name", c.Name, "is a name that Linux gives network devices; use another one, such as bond0")
	case slices.ContainsFunc(g.Bonds[:index], isNamed):
		p.problems.Add(at+".name", c.Name, "is the name of another bond already; choose another one")
	case len(g.members(c.Name)) == 0:
		p.problems.Add(at+".name", c.Name, "is the bond of no device; set bond for some of extraNICs, or remove it")
	}

	for _, setting := range []struct {
		key, value string
		modes      []string
	}{{"xmitHashPolicy", c.XmitHashPolicy, hashModes}, {"lacpRate", c.LACPRate, lacpModes}} {
		if setting.value != "" && !slices.Contains(setting.modes, c.Mode) {
			p.problems.Add(at+"."+setting.key, setting.value, "is for the mode %s, and it is %s; remove it",
				strings.Join(setting.modes, ", "), c.Mode)
		}
	}

	if slices.Contains(lacpModes, c.Mode) && g.count > 0 {
		p.warn("%s.mode: is 802.3ad, and bridges of Linux do not forward LACP to machines: it needs bridges of Open vSwitch that do, "+
			"or another mode, such as active-backup", at)
	}

	for _, i := range g.members(c.Name) {
		nic, first := g.ExtraNICs[i], g.members(c.Name)[0]
		if nic.VLAN != g.ExtraNICs[first].VLAN {
			p.problems.Add(fmt.Sprintf("%s.extraNICs[%d].vlan", g.path, i), nic.VLAN,
				"is not that of extraNICs[%d], which is in %s, too; set the same for both", first, c.Name)
		}

		if nic.MTU != 0 && c.MTU > nic.MTU {
			p.problems.Add(at+".mtu", c.MTU, "is more than the %d of extraNICs[%d], which is in the bond; set that or less", nic.MTU, i)
		}
	}
}
