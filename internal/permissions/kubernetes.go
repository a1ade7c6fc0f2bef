package permissions

// Software of clusters has roles of its own, which it gets on the cluster's own machines and datastores only. The calls
// are those of the Proxmox CSI plugin 0.19 and of the Proxmox cloud controller manager 0.13.

// CSIMachines is what the CSI plugin may do on a machine: attach and detach volumes. Those belong to VM 9999, which
// need not exist; what attaches them is Datastore.Allocate on their datastore.
func CSIMachines() Role {
	return Role{ID: "TalosCSIMachines", Needs: []Need{
		on("/vms", "VM.Audit", "GET /nodes/{node}/qemu/{vmid}/status/current", "find the node's machine and what it has",
			" (/vms/2000, VM.Audit)"),
		on("/vms", "VM.Config.Disk", "POST /nodes/{node}/qemu/{vmid}/config", "attach, resize and detach volumes",
			" (/vms/2000, VM.Config.Disk|VM.Config.CDROM|VM.Config.CPU|VM.Config.Memory|VM.Config.Network|VM.Config.HWType|"+
				"VM.Config.Options|VM.Config.Cloudinit)"),
	}}
}

// CSIStorage is what the CSI plugin may do on a datastore.
func CSIStorage() Role {
	return Role{ID: "TalosCSIStorage", Needs: []Need{
		on("/storage", "Datastore.Audit", "GET /cluster/resources", "find the datastore and the hosts that have it", ""),
		on("/storage", "Datastore.AllocateSpace", "POST /nodes/{node}/storage/{storage}/content", "make volumes",
			" (/storage/local-lvm, Datastore.AllocateSpace)"),
		on("/storage", "Datastore.Allocate", "POST /nodes/{node}/qemu/{vmid}/config",
			"attach volumes, which are VM 9999's, and delete them", " (/vms/9999, VM.Config.Disk)"),
	}}
}

// CCMMachines is what the cloud controller manager may do on a machine: see it. A machine that it does not see is gone
// for it.
func CCMMachines() Role {
	return Role{ID: "TalosCCMMachines", Needs: []Need{
		on("/vms", "VM.Audit", "GET /cluster/resources", "see whether the node's machine is there, and whether it runs", ""),
	}}
}

// KubernetesRoles are those of clusters' software.
func KubernetesRoles() []Role { return []Role{CSIMachines(), CSIStorage(), CCMMachines()} }
