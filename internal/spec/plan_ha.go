package spec

import (
	"cmp"
	"regexp"
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
	// The copies of the machine's disks on the other hosts that it may run on. Default: none.
	Replication *Replication `json:",omitempty" pulumi:"replication,optional"`
}

// Replication is how Proxmox copies the disks of a machine, which are on ZFS, to other hosts.
type Replication struct {
	// When Proxmox copies, as one of its calendar events. Default: `*/15`, every 15 minutes.
	Schedule string `pulumi:"schedule,optional"`
	// The most that each copy may send, in megabytes (10^6 bytes) per second. Default: 0, no limit.
	RateMBs int `pulumi:"rateMBs,optional"`
}

// ReplicationSchedule is the default of [Replication.Schedule], which is Proxmox' own.
const ReplicationSchedule = "*/15"

// calendarEvent matches what can be a calendar event of Proxmox, which are part of systemd's.
var calendarEvent = regexp.MustCompile(`^[A-Za-z0-9*/,.:~ -]{1,128}$`)

// IsCalendarEvent reports whether a text can be a calendar event of Proxmox.
func IsCalendarEvent(text string) bool { return calendarEvent.MatchString(text) }

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

	if g.HA.Replication != nil {
		ha.Replication = &Replication{
			Schedule: cmp.Or(g.HA.Replication.Schedule, ReplicationSchedule), RateMBs: g.HA.Replication.RateMBs,
		}
	}

	if len(g.Hosts) > 0 || ha.Replication != nil { // other hosts have no copy
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

	if g.HA.Replication != nil {
		p.checkReplication(g)
	}

	if !g.OnBoot {
		p.problems.Add(g.path+".onBoot", false, "has no effect on machines with ha, which Proxmox starts after every failure: "+
			"remove one of the two")
	}
}

// checkReplication refuses machines that may not run with disks of minutes ago, and disks that Proxmox does not copy.
func (p *planner) checkReplication(g *pool) {
	at := g.path + ".ha.replication"

	if g.role == RoleControlPlane {
		p.problems.Add(at, nil, "is not for control planes: after a failover, etcd would run with data of minutes ago, and the cluster "+
			"would lose writes; remove ha, with which two of three control planes work on, or use a datastore that all hosts share")
	}

	if schedule := g.HA.Replication.Schedule; schedule != "" && !IsCalendarEvent(schedule) {
		p.problems.Add(at+".schedule", schedule, `is no calendar event of Proxmox; use one such as "*/15" for every 15 minutes, or "22:30"`)
	}

	for _, n := range g.nodes {
		for _, d := range n.ExtraDisks {
			if d.Volume != "" {
				p.problems.Add(at, nil, "does not copy the volume %s of %s, which outlives the machine and which Proxmox counts as another's: "+
					"remove one of the two, or use a datastore that all hosts share without replication", d.Volume, n.Name)

				return
			}
		}
	}
}
