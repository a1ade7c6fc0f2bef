package operations

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/spec"
)

// datacentre is what Proxmox says about the hosts and machines of a stack. What it did not say is in notAsked.
type datacentre struct {
	hosts    map[string]string // statuses by name; nil = unknown
	loads    []request.PlacementHost
	machines []proxmoxapi.Listed // those that the credentials see
	services map[string]string   // states in high availability, by id; nil = unknown
	copies   map[int][]string    // failures of replication, by VMID
	noQuorum bool                // as it says itself
	notAsked []string            // what is unknown, and why
}

// readDatacentre asks Proxmox. The documented role sees hosts and machines; what becomes of machines in high
// availability, and the quorum, needs Sys.Audit on /, which the role for `ha` has.
func readDatacentre(ctx context.Context, proxmox *proxmoxapi.Machines, ha bool) (d datacentre) {
	hosts, err := proxmoxapi.Hosts(ctx, proxmox.Get)
	if err == nil {
		d.machines, err = proxmox.List(ctx)
	}

	if err != nil {
		d.notAsked = append(d.notAsked, fmt.Sprintf("where machines are, and whether their hosts are online: %v", err))

		return d
	}

	d.hosts = map[string]string{}
	for _, h := range hosts {
		d.hosts[h.Name] = h.Status
		d.loads = append(d.loads, request.PlacementHost{
			Name: h.Name, Status: h.Status, Cores: h.Cores, CPU: h.CPU, MemoryBytes: h.Memory, MemoryUsedBytes: h.MemoryUsed,
		})
	}

	slices.SortFunc(d.loads, func(a, b request.PlacementHost) int { return problem.CompareNatural(a.Name, b.Name) })

	quorate, err := proxmoxapi.Quorate(ctx, proxmox.Get)
	d.noQuorum = err == nil && !quorate

	if err != nil && !d.isMajorityOnline() {
		d.notAsked = append(d.notAsked, fmt.Sprintf("whether Proxmox' cluster has quorum, without which other hosts only seem offline: %v", err))
	}

	if !ha {
		return d
	}

	services, err := proxmoxapi.HAServices(ctx, proxmox.Get)
	if err != nil {
		d.notAsked = append(d.notAsked, fmt.Sprintf("what becomes of machines with high availability: %v", err))

		return d
	}

	d.services = map[string]string{}
	for _, s := range services {
		d.services[s.ID] = s.State
	}

	return d
}

// readReplication asks the hosts that are online which copies of machines' disks fail.
func (d *datacentre) readReplication(ctx context.Context, proxmox *proxmoxapi.Machines) {
	d.copies = map[int][]string{}

	for _, host := range slices.Sorted(maps.Keys(d.hosts)) {
		if d.hosts[host] != proxmoxapi.HostOnline {
			continue
		}

		failures, err := proxmoxapi.ReplicationFailures(ctx, proxmox.Get, host)
		if err != nil {
			d.notAsked = append(d.notAsked, fmt.Sprintf("whether the disks of machines on %s are copied: %v", host, err))
		}

		maps.Copy(d.copies, failures)
	}
}

// isMajorityOnline reports whether most hosts are online, with which a cluster has quorum, whatever else votes.
func (d datacentre) isMajorityOnline() bool {
	online := 0

	for _, status := range d.hosts {
		if status != proxmoxapi.HostOffline {
			online++
		}
	}

	return 2*online > len(d.hosts)
}

// machine returns the VM that has a VMID.
func (d datacentre) machine(vmid int) (proxmoxapi.Listed, bool) {
	i := slices.IndexFunc(d.machines, func(m proxmoxapi.Listed) bool { return m.VMID == vmid })
	if i < 0 {
		return proxmoxapi.Listed{}, false
	}

	return d.machines[i], true
}

// placement returns where machines are: those of a cluster, or of the stack. LastHosts are those of the last run, by
// VMID.
func (d datacentre) placement(stack string, machines []spec.VM, lastHosts map[int]string) *request.Placement {
	p := &request.Placement{Stack: stack, NoQuorum: d.noQuorum, Hosts: d.loads, NotAsked: d.notAsked}
	if d.hosts == nil {
		return p
	}

	for _, n := range machines {
		placed := request.PlacedMachine{Node: n.Name, VMID: n.VMID}

		if vm, found := d.machine(n.VMID); found {
			placed.Host, placed.Status = vm.Host, vm.Status
			placed.HostStatus = d.hosts[vm.Host]
			placed.HA, placed.Replication = d.services[proxmoxapi.HAResourceID(n.VMID)], d.copies[n.VMID]

			planned := lastHosts[n.VMID]
			if n.HostPinned {
				planned = n.Host
			}

			if planned != vm.Host {
				placed.PlannedHost = planned
			}
		}

		p.Machines = append(p.Machines, placed)
	}

	return p
}

// machinesOf returns the machines of nodes.
func machinesOf(nodes []spec.Node) []spec.VM {
	machines := make([]spec.VM, 0, len(nodes))
	for _, n := range nodes {
		machines = append(machines, n.VM)
	}

	return machines
}

// hasReplication reports whether the disks of a machine of the plan are copied to other hosts.
func hasReplication(plan *spec.Plan) bool {
	return slices.ContainsFunc(plan.Members(), func(m spec.Member) bool { return m.HA != nil && m.HA.Replication != nil })
}

// hasHA reports whether a machine of the plan has high availability.
func hasHA(plan *spec.Plan) bool {
	return slices.ContainsFunc(plan.Members(), func(m spec.Member) bool { return m.HA != nil })
}
