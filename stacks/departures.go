package stacks

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/vmdiff"
)

// membersTimeout limits the query of a cluster about machines that were to leave it.
const membersTimeout = "20s"

// noLeaveCommand is why a node could not leave its cluster, as far as the state tells.
const noLeaveCommand = "the state has no command for it"

// findDepartures finds out about the control planes that the plan no longer has, and whose leave commands the state no
// longer has: a killed run may have ended after the command and before the deletion of the VM, and only the machines
// and Proxmox know that. A control plane that its run did not finish to create never had one.
func (d *deployment) findDepartures(ctx context.Context) (warnings []string) {
	planned := map[string]bool{}
	for _, m := range d.plan.Members() {
		planned[m.Name] = true
	}

	for _, cluster := range d.plan.Clusters {
		var unsure []*vmdiff.Machine

		for i := range d.lastRun.machines {
			m := &d.lastRun.machines[i]
			if m.Cluster == cluster.Name && m.ControlPlane && m.CannotLeave != "" && !planned[m.Name] {
				unsure = append(unsure, m)
			}
		}

		if len(unsure) == 0 {
			continue
		}

		found, err := d.queryMembers(ctx, cluster, unsure)
		if err != nil {
			warnings = append(warnings, fmt.Sprintf("unable to ask cluster %s who belongs to it: %v", cluster.Name, err))
		}

		for _, m := range unsure {
			d.judgeDeparture(ctx, m, found)
		}
	}

	return warnings
}

// judgeDeparture sets whether a machine has left its cluster. One that runs may be about to join.
func (d *deployment) judgeDeparture(ctx context.Context, m *vmdiff.Machine, found request.MembersResult) {
	switch {
	case slices.Contains(found.Present, m.Name):
		m.CannotLeave = "it is a member of etcd, or registered in Kubernetes"

		return
	case !d.lastRun.isBootstrapped(m.Cluster) && len(found.HasData) == 0: // as far as anybody knows, never a cluster
		m.CannotLeave = ""

		return
	case !found.Listed:
		m.CannotLeave = "no control plane says whether it belongs to the cluster"

		return
	}

	machine, err := d.lookup.proxmox.Find(ctx, m.Host, m.VMID)

	switch {
	case err != nil && !errors.Is(err, proxmoxapi.ErrNotFound):
		m.CannotLeave = "Proxmox does not say whether it is off"
	case err == nil && !machine.Stopped:
		m.CannotLeave = fmt.Sprintf("it belongs to the cluster no longer or not yet, and runs: `qm stop %d` on %s",
			m.VMID, machine.Host)
	default:
		m.CannotLeave, m.Departed = "", true
	}
}

// queryMembers asks the remaining control planes with a client of the authority in the state.
func (d *deployment) queryMembers(
	ctx context.Context, cluster spec.Cluster, machines []*vmdiff.Machine,
) (found request.MembersResult, err error) {
	client, err := d.lastRun.authorities[cluster.Name].TemporaryAdministrator(time.Now())
	if err != nil {
		return found, err
	}

	req := request.Members{Common: request.Common{
		Timeout: membersTimeout, ControlPlanes: request.NodesOf(cluster.ControlPlanes),
	}}
	if req.Talosconfig, err = client.Talosconfig(cluster.Name, cluster.ControlPlaneAddresses()); err != nil {
		return found, err
	}

	for _, m := range machines {
		address, err := netip.ParseAddr(m.Address)
		if err != nil {
			return found, fmt.Errorf("the state has no address of %s", m.Name)
		}

		req.Nodes = append(req.Nodes, request.Node{Name: m.Name, Address: address})
	}

	return d.members(ctx, req)
}
