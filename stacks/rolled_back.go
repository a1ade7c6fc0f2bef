package stacks

import (
	"fmt"
	"os"
	"slices"

	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/vmdiff"
	"talos-proxmox/internal/vmlookup"
)

// isRolledBack reports whether a machine is the one that was created, in another generation: it was rolled back to a
// snapshot, or restored from a backup. A machine that this run has created instead has another creation id.
func (m *machineLookup) isRolledBack(found proxmoxapi.Machine, vmid int) bool {
	known := m.known[vmid]

	return known.CreationID != "" && known.CreationID == found.CreationID() &&
		known.Generation != "" && known.Generation != found.Generation()
}

// checkRollback refuses a control plane that was rolled back beside others: its etcd has forgotten what it has
// acknowledged to them, so that the cluster can lose data when it votes again. Others are reported.
func (m *machineLookup) checkRollback(vm vmlookup.VM, found proxmoxapi.Machine) error {
	if !m.isRolledBack(found, vm.VMID) {
		return nil
	}

	name := fmt.Sprintf("%s (VM %d on host %s)", vm.Name, vm.VMID, found.Host)
	planned := m.planned[vm.VMID]
	all, rolledBack := m.controlPlanes(planned.Cluster)

	switch {
	case !planned.ControlPlane:
		return m.warn(name+" was rolled back to a snapshot, or restored from a backup: what it stored since then is gone, and "+
			"its machine configuration is applied again", nil)
	case len(all) == 1:
		return m.warn(name+" was rolled back to a snapshot, or restored from a backup: as the only control plane, it takes "+
			"cluster "+planned.Cluster+" back to that time", nil)
	case os.Getenv(request.ForceVariable) != "":
		return m.warn(name+" was rolled back to a snapshot, or restored from a backup, and joins etcd with the data of that "+
			"time, because "+request.ForceVariable+" is set", nil)
	}

	way := fmt.Sprintf("replace it, so that it leaves and joins empty: `pulumi up --replace '**::%s-vm'`", vm.Name)
	if len(rolledBack)*2 >= len(all) {
		way = fmt.Sprintf("%s have no newer data in common: restore etcd from a snapshot (docs/recovery.md), or proceed if all of them "+
			"were shut down before their snapshots or backups were taken", vmdiff.JoinNames(rolledBack))
	}

	return fmt.Errorf("%s was rolled back to a snapshot, or restored from a backup, and is a control plane of cluster %s: its "+
		"etcd has forgotten what it acknowledged since then, and the cluster can lose data when it votes: %s; to proceed with "+
		"its old data: %s=1 pulumi up", name, planned.Cluster, way, request.ForceVariable)
}

// controlPlanes returns the planned control planes of a cluster that the state has, and those that were rolled back.
func (m *machineLookup) controlPlanes(cluster string) (all, rolledBack []string) {
	for vmid, planned := range m.planned {
		_, existed := m.known[vmid]
		if !existed || planned.Cluster != cluster || !planned.ControlPlane {
			continue
		}

		all = append(all, planned.Name)

		if m.isRolledBack(m.verified.Own[vmid], vmid) {
			rolledBack = append(rolledBack, planned.Name)
		}
	}

	slices.Sort(rolledBack)

	return all, rolledBack
}
