package permissions

// Clusters' software has its own roles, granted only on the cluster's machines and datastores. The calls are those of
// the Proxmox CSI plugin 0.19 and of the Proxmox cloud controller manager 0.13.

// CSIMachines is the CSI plugin's role on machines: attach and detach volumes. The volumes belong to VM 9999, which
// need not exist; attaching them requires Datastore.Allocate on their datastore.
func CSIMachines() Role {
	return Role{ID: "TalosCSIMachines", Needs: []Need{
		needOn("/vms", "VM.Audit", "GET /nodes/{node}/qemu/{vmid}/status/current", "find the node's machine and what it has",
			" (/vms/2000, VM.Audit)"),
		needOn("/vms", "VM.Config.Disk", "POST /nodes/{node}/qemu/{vmid}/config", "attach, resize and detach volumes",
			" (/vms/2000, VM.Config.Disk|VM.Config.CDROM|VM.Config.CPU|VM.Config.Memory|VM.Config.Network|VM.Config.HWType|"+
				"VM.Config.Options|VM.Config.Cloudinit)"),
	}}
}

// CSIStorage is the CSI plugin's role on datastores.
func CSIStorage() Role {
	return Role{ID: "TalosCSIStorage", Needs: []Need{
		needOn("/storage", "Datastore.Audit", "GET /cluster/resources", "find the datastore and the hosts that have it", ""),
		needOn("/storage", "Datastore.AllocateSpace", "POST /nodes/{node}/storage/{storage}/content", "make volumes",
			" (/storage/local-lvm, Datastore.AllocateSpace)"),
		needOn("/storage", "Datastore.Allocate", "POST /nodes/{node}/qemu/{vmid}/config",
			"attach volumes, which are VM 9999's, and delete them", " (/vms/9999, VM.Config.Disk)"),
	}}
}

// CCMMachines is the cloud controller manager's role on machines: see them. It treats a machine that it cannot see as
// deleted.
func CCMMachines() Role {
	return Role{ID: "TalosCCMMachines", Needs: []Need{
		needOn("/vms", "VM.Audit", "GET /cluster/resources", "see whether the node's machine is there, and whether it runs", ""),
	}}
}

// KubernetesRoles returns the roles of clusters' software.
func KubernetesRoles() []Role { return []Role{CSIMachines(), CSIStorage(), CCMMachines()} }
