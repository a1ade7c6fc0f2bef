package proxmox

import (
	"maps"
	"slices"
	"strconv"

	"talos-proxmox/lab/datacentre"
)

const (
	vmPath       = "/nodes/{node}/qemu/{vmid}"
	vmPrivileges = "VM.Config.Disk|VM.Config.CDROM|VM.Config.CPU|VM.Config.Memory|VM.Config.Network|VM.Config.HWType|VM.Config.Options|VM.Config.Cloudinit"
)

func qemuRoutes() []route {
	return []route{
		{method: "GET", path: "/nodes/{node}/qemu", params: "full", handle: onNode(listVMs)},
		{
			// the model checks it: the privileges follow from the configuration
			method: "POST", path: "/nodes/{node}/qemu", handle: createVM,
			params: "vmid* config archive bwlimit force ha-managed import-working-storage live-restore pool start storage unique",
		},
		{method: "GET", path: vmPath, handle: index(
			"subdir", "agent", "clone", "config", "migrate", "move_disk", "pending", "resize", "snapshot", "status", "template",
		)},
		{
			method:    "DELETE",
			path:      vmPath,
			params:    "destroy-unreferenced-disks purge skiplock",
			privilege: "VM.Allocate",
			path2:     "/vms/{vmid}",
			handle: func(r *request) (any, error) {
				return upid(r.dc.DestroyVM(r.user, r.node(), r.vmid(), datacentre.DestroyOptions{
					Purge:                    r.params.bool("purge"),
					DestroyUnreferencedDisks: r.params.bool("destroy-unreferenced-disks"),
					SkipLock:                 r.params.bool("skiplock"),
				}))
			},
		},
		{
			method: "GET", path: vmPath + "/config", params: "current snapshot", privilege: "VM.Audit", path2: "/vms/{vmid}",
			handle: onVM(func(_ *request, vm datacentre.VM) (any, error) { return configObject(vm), nil }),
		},
		{
			method:    "PUT",
			path:      vmPath + "/config",
			params:    "config delete digest force revert skiplock",
			privilege: vmPrivileges,
			path2:     "/vms/{vmid}",
			handle: func(r *request) (any, error) {
				set, del := configChange(r)

				return done(r.dc.SetConfig(r.user, r.node(), r.vmid(), set, del))
			},
		},
		{
			method:    "POST",
			path:      vmPath + "/config",
			params:    "config background_delay delete digest force import-working-storage revert skiplock",
			privilege: vmPrivileges, path2: "/vms/{vmid}",
			handle: func(r *request) (any, error) {
				set, del := configChange(r)

				return upid(r.dc.SetConfigTask(r.user, r.node(), r.vmid(), set, del))
			},
		},
		{method: "GET", path: vmPath + "/pending", privilege: "VM.Audit", path2: "/vms/{vmid}", handle: onVM(pending)},
		{
			method:    "POST",
			path:      vmPath + "/clone",
			params:    "bwlimit description format full name newid* pool snapname storage target",
			privilege: "VM.Clone", path2: "/vms/{vmid}", allow: mayAllocate, handle: cloneVM,
		},
		{
			method: "POST", path: vmPath + "/template", params: "disk", privilege: "VM.Allocate", path2: "/vms/{vmid}",
			handle: func(r *request) (any, error) { return upid(r.dc.ConvertToTemplate(r.user, r.node(), r.vmid())) },
		},
		{
			method:    "PUT",
			path:      vmPath + "/resize",
			params:    "digest disk* size* skiplock",
			privilege: "VM.Config.Disk",
			path2:     "/vms/{vmid}",
			handle: func(r *request) (any, error) {
				return upid(r.dc.ResizeDisk(r.user, r.node(), r.vmid(), r.params.get("disk"), r.params.get("size")))
			},
		},
		{
			method:    "POST",
			path:      vmPath + "/move_disk",
			params:    "bwlimit delete digest disk* format storage target-digest target-disk target-vmid",
			privilege: "VM.Config.Disk", path2: "/vms/{vmid}",
			handle: func(r *request) (any, error) {
				if !r.params.has("storage") && !r.params.has("target-vmid") {
					const missing = "both 'storage' and 'target-vmid' missing, either needs to be set"

					return nil, datacentre.ParameterError(map[string]string{"storage": missing, "target-vmid": missing})
				}

				return upid(r.dc.MoveDisk(r.user, r.node(), r.vmid(), datacentre.MoveRequest{
					Disk:    r.params.get("disk"),
					Storage: r.params.get("storage"),
					Format:  r.params.get("format"),
					Delete:  r.params.bool("delete"),
				}))
			},
		},
		{
			method: "POST", path: vmPath + "/migrate", privilege: "VM.Migrate", path2: "/vms/{vmid}",
			params: "bwlimit force migration_network migration_type online target* targetstorage with-conntrack-state with-local-disks",
			handle: func(r *request) (any, error) {
				if to := r.params.get("targetstorage"); to != "" && to != "1" {
					return nil, datacentre.ParameterError(map[string]string{
						"targetstorage": "the lab moves disks to storages of the same name only: leave it out, or state 1",
					})
				}

				return upid(r.dc.Migrate(r.user, r.node(), r.vmid(), datacentre.MigrateRequest{
					Target: r.params.get("target"), Online: r.params.bool("online"), WithLocalDisks: r.params.bool("with-local-disks"),
				}))
			},
		},
		{
			method: "PUT", path: vmPath + "/unlink", params: "idlist* force", privilege: "VM.Config.Disk", path2: "/vms/{vmid}",
			handle: func(r *request) (any, error) {
				return done(r.dc.SetConfig(r.user, r.node(), r.vmid(), nil, r.params.list("idlist")))
			},
		},
		{method: "GET", path: vmPath + "/snapshot", privilege: "VM.Audit", path2: "/vms/{vmid}", handle: onVM(snapshots)},
	}
}

// onVM finds the call's VM first.
func onVM(h func(*request, datacentre.VM) (any, error)) func(*request) (any, error) {
	return func(r *request) (any, error) {
		vm, err := r.vm()
		if err != nil {
			return nil, err
		}

		return h(r, vm)
	}
}

func listVMs(r *request, h datacentre.Host) (any, error) {
	list := []object{}

	for _, vm := range r.dc.VMs() {
		if vm.Host == h.Name && r.seesVM(vm.ID) {
			list = append(list, vmRow(r.dc, vm))
		}
	}

	return list, nil
}

func createVM(r *request) (any, error) {
	id, err := strconv.Atoi(r.params.get("vmid"))
	if err != nil {
		return nil, err
	}

	if r.params.has("archive") {
		return nil, datacentre.ParameterError(map[string]string{"archive": "the lab restores no backups"})
	}

	return upid(
		r.dc.CreateVM(
			r.user, r.node(), id, r.params.config("vmid", "node", "archive", "ha-managed", "import-working-storage"),
		),
	)
}

// configChange splits a change into what is set and what is removed.
func configChange(r *request) (datacentre.Config, []string) {
	return r.params.config("delete", "node", "vmid", "import-working-storage"), r.params.list("delete")
}

func cloneVM(r *request) (any, error) {
	newID, err := r.params.number("newid", 0)
	if err != nil {
		return nil, err
	}

	c := datacentre.CloneRequest{
		NewID:       newID,
		Name:        r.params.get("name"),
		Description: r.params.get("description"),
		Target:      r.params.get("target"),
		Storage:     r.params.get("storage"),
		Format:      r.params.get("format"), Pool: r.params.get("pool"), Snapshot: r.params.get("snapname"),
	}

	if r.params.has("full") {
		full := r.params.bool("full")
		c.Full = &full
	}

	return upid(r.dc.CloneVM(r.user, r.node(), r.vmid(), c))
}

// pending lists the configuration; nothing is ever pending here: what a guest does not see yet waits for its next power
// cycle.
func pending(_ *request, vm datacentre.VM) (any, error) {
	list := []object{}
	for _, k := range slices.Sorted(maps.Keys(vm.Config)) {
		list = append(list, object{"key": k, "value": typed(k, shown(k, vm.Config[k]))})
	}

	return append(list, object{"key": "digest", "value": vm.Digest}), nil
}

func snapshots(_ *request, vm datacentre.VM) (any, error) {
	return []object{
		{"name": "current", "description": "You are here!", "digest": vm.Digest, "running": flag(vm.Running)},
	}, nil
}
