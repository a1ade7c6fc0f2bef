package permissions

// An autoscaler's roles are those for the calls of Karpenter's provider for Proxmox 0.12 (pkg/providers/instance, with
// go-proxmox 0.5.1 of luthermonson). The program grants the first, on the templates of its pools; an administrator
// grants the others, on paths that stay.

// AutoscalerTemplates is its role on the templates that it clones.
func AutoscalerTemplates() Role {
	return Role{ID: "TalosAutoscalerTemplates", Needs: []Need{
		needOn("/vms", "VM.Audit", "GET /cluster/resources", "find the template of each host", ""),
		needOn("/vms", "VM.Clone", clone, "clone it", " (/vms/900, VM.Clone)"),
	}}
}

// AutoscalerMachines is its role on the resource pool of its machines.
func AutoscalerMachines() Role {
	vm := func(privilege, call, why string) Need {
		return needOn(OnPool, privilege, call, why, " (/vms/20000, "+privilege+")")
	}

	return Role{ID: "TalosAutoscalerMachines", Needs: []Need{
		needOn(OnPool, "VM.Allocate", clone, "clone into the pool, and delete its machines", ""),
		vm("VM.Audit", "GET /nodes/{node}/qemu/{vmid}/status/current", "see its machines"),
		vm("VM.Config.CDROM", configure, "attach the disc with the machine configuration"),
		vm("VM.Config.CPU", configure, "cores"),
		vm("VM.Config.Disk", "PUT /nodes/{node}/qemu/{vmid}/resize", "the size of the disk"),
		vm("VM.Config.HWType", configure, "the serial number of the SMBIOS"),
		vm("VM.Config.Memory", configure, "memory"),
		vm("VM.Config.Network", configure, "queues of the network device"),
		vm("VM.Config.Options", configure, "tags, boot order"),
		vm("VM.PowerMgmt", "POST /nodes/{node}/qemu/{vmid}/status/start", "start and stop its machines"),
	}}
}

// AutoscalerHosts is its role on hosts and their bridges.
func AutoscalerHosts() Role {
	return Role{ID: "TalosAutoscalerHosts", Needs: []Need{
		needOn("/nodes", "Sys.Audit", "GET /nodes/{node}/status", "see how much room hosts have, and their bridges",
			" (/nodes/pve1, Sys.Audit)"),
		needOn("/sdn/zones/localnetwork", "SDN.Use", clone, "use the bridge", " (/sdn/zones/localnetwork/vmbr0, SDN.Use)"),
	}}
}

// AutoscalerDisks is its role on the datastore of its machines' disks.
func AutoscalerDisks() Role {
	return Role{ID: "TalosAutoscalerDisks", Needs: []Need{
		needOn(OnDisks, "Datastore.AllocateSpace", clone, "create the disks of its machines",
			" (/storage/local-lvm, Datastore.AllocateSpace)"),
		needOn(OnDisks, "Datastore.Audit", "GET /nodes/{node}/storage", "see how much room the datastore has", ""),
	}}
}

// AutoscalerDiscs is its role on the datastore of the discs with machine configurations: their content type is iso.
func AutoscalerDiscs() Role {
	return Role{ID: "TalosAutoscalerDiscs", Needs: []Need{
		needOn(OnImages, "Datastore.Allocate", "DELETE /nodes/{node}/storage/{storage}/content/{volume}",
			"delete the disc, which has the cluster's secrets, once the machine has joined", " (/storage/local, Datastore.Allocate)"),
		needOn(OnImages, "Datastore.AllocateTemplate", "POST /nodes/{node}/storage/{storage}/upload", "upload the disc",
			" (/storage/local, Datastore.AllocateTemplate)"),
		needOn(OnImages, "Datastore.Audit", "GET /nodes/{node}/storage", "find the datastore", ""),
	}}
}

// AutoscalerRoles returns the roles of autoscalers.
func AutoscalerRoles() []Role {
	return []Role{
		AutoscalerTemplates(), AutoscalerMachines(), AutoscalerHosts(), AutoscalerDisks(), AutoscalerDiscs(),
	}
}

// AutoscalerGrants returns the shell commands that create an autoscaler's user and token, and grant it its roles on the
// resource pool autoscaled and the datastores of [Example].
func AutoscalerGrants() []string {
	const user, token = "karpenter@pve", "karpenter"

	h := Holder{User: user}
	lines := []string{
		"pveum user add " + user,
		"pveum user token add " + user + " " + token + " --privsep 0   # prints the secret, once",
		h.Grant("/pool/autoscaled", AutoscalerMachines().ID),
	}

	for _, role := range []Role{AutoscalerHosts(), AutoscalerDisks(), AutoscalerDiscs()} {
		for _, path := range role.Paths(Example()) {
			lines = append(lines, h.Grant(path, role.ID))
		}
	}

	return lines
}
