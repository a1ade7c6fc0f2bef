package spec

import (
	"slices"
	"strings"
)

// MaxHATries limits how often, and on how many hosts, Proxmox tries to start a machine.
const MaxHATries = 10

// HA is a machine's high availability in Proxmox.
type HA struct {
	// How often Proxmox starts the machine again on the same host when that fails, from 1 to 10. Default: 1.
	MaxRestart int `pulumi:"maxRestart,optional"`
	// On how many other hosts Proxmox then tries it, from 1 to 10. Default: 1.
	MaxRelocate int `pulumi:"maxRelocate,optional"`
	// The hosts that the machine may run on. Default: all of the Proxmox cluster.
	Hosts []string `pulumi:"hosts,optional"`
	// Keep the control plane on another host than those of its cluster that have it as well. Default: false.
	Apart bool `pulumi:"apart,optional"`
}

// planHA plans the high availability of a pool's machines, whose hosts and devices are known. Where Proxmox moved one,
// it stays: a host in the stack file is only that of a new machine.
func (p *planner) planHA(g *pool) {
	if g.HA == nil {
		return
	}

	p.checkHA(g)

	ha := HA{MaxRestart: g.HA.MaxRestart, MaxRelocate: g.HA.MaxRelocate}
	// Proxmox refuses a rule with more machines than hosts, and one with a single machine.
	ha.Apart = g.role == RoleControlPlane && len(g.nodes) > 1 && len(g.nodes) <= len(g.allowed)

	if len(g.Hosts) > 0 {
		ha.Hosts = g.allowed
	}

	for i := range g.nodes {
		own := ha
		g.nodes[i].HA, g.nodes[i].HostPinned = &own, false

		if host := g.nodes[i].Host; len(own.Hosts) > 0 && host != "" && !slices.Contains(own.Hosts, host) {
			p.problems.Add(g.path+".hosts", strings.Join(g.allowed, ", "), "does not have %s, the host of %s, and Proxmox would move it "+
				"away: add it, or set another host", host, g.nodes[i].Name)
		}
	}
}

// checkHA refuses what Proxmox could not start on another host.
func (p *planner) checkHA(g *pool) {
	at := g.path + ".ha"

	for _, n := range g.nodes {
		if devices := n.AllDevices(); len(devices) > 0 {
			p.problems.Add(at, nil, "is for machines that any host can start, and %s has %s of its host: remove ha, or the device",
				n.Name, devices[0].Name)

			return
		}
	}

	switch {
	case len(p.hosts) == 1:
		p.problems.Add(at, nil, "needs another host to start machines on, and the stack has one: remove ha, or add hosts of the "+
			"Proxmox cluster")
	case len(g.allowed) == 1:
		p.problems.Add(at, nil, "needs another host to start machines on, and hosts has %s alone: add one, or remove ha", g.allowed[0])
	}

	if !g.OnBoot {
		p.problems.Add(g.path+".onBoot", false, "has no effect on machines with ha, which Proxmox starts after every failure: "+
			"remove one of the two")
	}
}
