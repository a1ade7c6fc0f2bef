package preflight

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/vmdiff"
)

// checkHosts finds hosts that are not in Proxmox' cluster or not online.
func (c *checker) checkHosts() {
	if c.site.Hosts == nil {
		return
	}

	known := strings.Join(slices.Sorted(maps.Keys(c.site.Hosts)), ", ")
	for _, h := range c.plan.Hosts {
		found, exists := c.site.Hosts[h.Name]
		switch planned := c.planned.newOn(h.Name); {
		case !exists:
			c.problem(h.Name, h.Path+".name", h.Name, "is not a host of this Proxmox cluster (there are %s): correct "+
				"the name, or join the host to the cluster", known)
		case found.Status == proxmoxapi.HostUnknown:
			c.warn(h.Name, h.Path+".name", h.Name, "has not reported its status lately: `systemctl restart pvestatd` there; until "+
				"then the usage of its cores and storages is unknown")
		case found.Status != proxmoxapi.HostOffline:
			c.fine(h.Name, "is %s", found.Status)
		case len(planned) > 0:
			c.problem(h.Name, h.Path+".name", h.Name, "is offline, and %s: bring it back (`pvecm status` and "+
				"`systemctl status pve-cluster corosync` there), or place them elsewhere",
				describeNew(planned))
		default:
			c.warn(h.Name, h.Path+".name", h.Name, "is offline: what is on it can neither be read nor changed")
		}
	}

	c.checkHostsOfMachines()
}

// checkHostsOfMachines finds machines of the state on hosts that the plan does not have, and machines that are to move
// off a host that is offline.
func (c *checker) checkHostsOfMachines() {
	machines := map[string][]string{}

	for vmid, m := range c.stack.Machines {
		wanted, isPlanned := c.planned.machine(vmid)
		moves := isPlanned && wanted.Host != m.Host // pinned to another host

		switch {
		case moves && c.site.host(m.Host).Status == proxmoxapi.HostOffline:
			c.problem(m.Host, fmt.Sprintf("%s.nodes.%d.host", wanted.Path, wanted.Index+1), wanted.Host,
				"would move %s off %s, which is offline: bring that host back first, or remove it for good "+
					"(docs/recovery.md#a-host-is-lost)", m.Name, m.Host)
		case !moves && !slices.ContainsFunc(c.plan.Hosts, func(h spec.Host) bool { return h.Name == m.Host }):
			machines[m.Host] = append(machines[m.Host], m.Name)
		}
	}

	for _, host := range slices.Sorted(maps.Keys(machines)) {
		names := vmdiff.JoinNames(slices.Sorted(slices.Values(machines[host])))

		switch found, exists := c.site.Hosts[host]; {
		case !exists:
			c.warn(host, "hosts", nil, "the host %s is neither there nor in Proxmox' cluster, and the state has %s on it: "+
				"`talos-proxmox replace %s --host %[1]s` creates what is planned on other hosts (docs/recovery.md#a-host-is-lost)",
				host, names, c.stack.Name)
		case found.Status == proxmoxapi.HostOffline && !c.hasConfigurations(host):
			c.warn(host, "hosts", nil, "the host %s is not there, and is offline, and Proxmox no longer has %s on it: "+
				"`talos-proxmox replace %s --host %[1]s` creates what is planned on other hosts (docs/recovery.md#a-host-is-lost)",
				host, names, c.stack.Name)
		case found.Status == proxmoxapi.HostOffline:
			c.problem(host, "hosts", nil, "the host %s is not there, and is offline, with %s on it, which can be neither read "+
				"nor changed: set it again and bring it back, or remove it from Proxmox first (docs/recovery.md#a-host-is-lost)", host, names)
		default:
			c.warn(host, "hosts", nil, "the host %s is not there, and %s on it: what is planned stays there, and nothing is checked "+
				"or prepared on that host; set it again, or move its machines (nodes.<n>.host)", host, names)
		}
	}
}

// hasConfigurations reports whether Proxmox still has machines of the stack on a host, or does not say.
func (c *checker) hasConfigurations(host string) bool {
	return c.site.Machines == nil || slices.ContainsFunc(c.site.Machines, func(vm proxmoxapi.Listed) bool {
		_, own := c.stack.Machines[vm.VMID]

		return own && vm.Host == host
	})
}

// describeNew names the first of what is to be created.
func describeNew(names []string) string {
	const limit = 3

	text := strings.Join(names[:min(limit, len(names))], ", ")
	if len(names) > limit {
		text += ", …"
	}

	if len(names) == 1 {
		return text + " is to be created there"
	}

	return text + " are to be created there"
}

// checkQuorum: Proxmox refuses every change without quorum. Credentials that may not read it see how many hosts are
// offline.
func (c *checker) checkQuorum() {
	if c.site.NoQuorum {
		c.add(severity(c.planned.hasNew()), "", "hosts", nil,
			"Proxmox' cluster has no quorum, so that nothing can be made or changed: `pvecm status` on a host "+
				"shows who is missing; running machines keep running")

		return
	}

	away := 0

	for _, h := range c.site.Hosts {
		if h.Status == proxmoxapi.HostOffline {
			away++
		}
	}

	if away > 0 && 2*away >= len(c.site.Hosts) {
		c.warn("", "hosts", nil, "%d of the %d hosts of Proxmox' cluster are offline, so that it may have no "+
			"quorum and nothing can be made or changed: `pvecm status` on a host shows it",
			away, len(c.site.Hosts))
	}
}

// checkCores finds machines with more cores than their host, which Proxmox does not start, and such templates that boot
// during their build. Hosts with cores in the configuration are checked with the plan.
func (c *checker) checkCores() {
	for _, m := range c.planned.machines {
		if cores := c.site.host(m.Host).Cores; cores > 0 && m.Cores > cores && !c.hasPlannedCores(m.Host) {
			c.problem(m.Host, m.Path+".cores", nil, "gives %s %d cores, and %s has %d: Proxmox does not start such "+
				"a machine; give it fewer, or another host",
				m.Name, m.Cores, m.Host, cores)
		}
	}

	for _, t := range c.planned.templates {
		if cores := c.site.host(t.Host).Cores; cores > 0 && t.Cores > cores && t.System != nil && !t.built {
			c.problem(t.Host, t.path+".cores", nil, "%d cores are more than the %d of %s, and the template starts there while "+
				"it is built: give it fewer; machines have cores of their own", t.Cores, cores, t.Host)
		}
	}
}

func (c *checker) hasPlannedCores(host string) bool {
	return slices.ContainsFunc(c.plan.Hosts, func(h spec.Host) bool { return h.Name == host && h.Cores > 0 })
}
