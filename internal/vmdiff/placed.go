package vmdiff

import (
	"fmt"
	"slices"

	"talos-proxmox/internal/spec"
)

// WithCurrentHosts returns the plan with running machines on their current hosts, since automatic placement moves no
// machine, and a line for each machine that would be placed on another host if it were new.
func WithCurrentHosts(plan *spec.Plan, machines []Machine) (placed *spec.Plan, stays []string) {
	hosts := map[string]string{}
	for _, m := range machines {
		hosts[m.Name] = m.Host
	}

	changed := *plan

	changed.Clusters = slices.Clone(plan.Clusters)
	for i := range changed.Clusters {
		c := &changed.Clusters[i]

		c.ControlPlanes, c.Workers = slices.Clone(c.ControlPlanes), slices.Clone(c.Workers)
		for _, nodes := range [][]spec.Node{c.ControlPlanes, c.Workers} {
			for j := range nodes {
				stays = append(stays, keepHost(&nodes[j].VM, hosts, len(nodes[j].AllDevices()) > 0)...)
			}
		}
	}

	changed.Machines = slices.Clone(plan.Machines)
	for i := range changed.Machines {
		stays = append(stays, keepHost(&changed.Machines[i].VM, hosts, len(changed.Machines[i].Devices) > 0)...)
	}

	return &changed, stays
}

// keepHost sets a running machine's current host, and describes it if a new machine would be placed elsewhere.
func keepHost(n *spec.VM, hosts map[string]string, devices bool) []string {
	host, runs := hosts[n.Name]
	if !runs || host == n.Host || n.HostPinned || devices {
		return nil
	}

	move := fmt.Sprintf(`%s.nodes: {"%d": {host: %s}}`, n.Path, n.Index+1, n.Host)
	if n.HA != nil {
		move = fmt.Sprintf("`ha-manager migrate vm:%d %s` on a host", n.VMID, n.Host)
	}

	line := fmt.Sprintf("%s runs on %s and was not moved; a new machine would be placed on %s. %s moves it",
		n.Name, host, n.Host, move)
	n.Host = host

	return []string{line}
}
