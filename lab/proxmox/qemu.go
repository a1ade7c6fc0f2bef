package proxmox

import (
	"maps"
	"slices"

	"talos-proxmox/lab/datacentre"
)

var qemuCalls = map[string]handler{
	"GET /nodes/{node}/qemu":                                     on((*request).host, listVMs),
	"POST /nodes/{node}/qemu":                                    createVM,
	"DELETE /nodes/{node}/qemu/{vmid}":                           destroyVM,
	"GET /nodes/{node}/qemu/{vmid}/config":                       on((*request).vm, getConfig),
	"PUT /nodes/{node}/qemu/{vmid}/config":                       putConfig,
	"POST /nodes/{node}/qemu/{vmid}/config":                      postConfig,
	"GET /nodes/{node}/qemu/{vmid}/pending":                      on((*request).vm, pending),
	"POST /nodes/{node}/qemu/{vmid}/clone":                       cloneVM,
	"POST /nodes/{node}/qemu/{vmid}/template":                    task((*datacentre.Datacentre).ConvertToTemplate),
	"PUT /nodes/{node}/qemu/{vmid}/resize":                       resizeDisk,
	"POST /nodes/{node}/qemu/{vmid}/move_disk":                   moveDisk,
	"POST /nodes/{node}/qemu/{vmid}/migrate":                     migrateVM,
	"PUT /nodes/{node}/qemu/{vmid}/unlink":                       unlinkDisks,
	"GET /nodes/{node}/qemu/{vmid}/status/current":               on((*request).vm, currentStatus),
	"POST /nodes/{node}/qemu/{vmid}/status/start":                task((*datacentre.Datacentre).Start),
	"POST /nodes/{node}/qemu/{vmid}/status/stop":                 task((*datacentre.Datacentre).Stop),
	"POST /nodes/{node}/qemu/{vmid}/status/reset":                task((*datacentre.Datacentre).Reset),
	"POST /nodes/{node}/qemu/{vmid}/status/shutdown":             shutdownVM,
	"POST /nodes/{node}/qemu/{vmid}/status/reboot":               rebootVM,
	"GET /nodes/{node}/qemu/{vmid}/agent/network-get-interfaces": agentInterfaces,
}

// task starts a task on the call's VM.
func task(start func(dc *datacentre.Datacentre, user, host string, vmid int) (string, error)) handler {
	return func(r *request) (any, error) { return upid(start(r.dc, r.user, r.node(), r.vmid())) }
}

func shutdownVM(r *request) (any, error) {
	return upid(r.dc.Shutdown(r.user, r.node(), r.vmid(), patience(r)))
}

func rebootVM(r *request) (any, error) {
	return upid(r.dc.Reboot(r.user, r.node(), r.vmid(), patience(r)))
}

func destroyVM(r *request) (any, error) {
	return upid(r.dc.DestroyVM(r.user, r.node(), r.vmid(), datacentre.DestroyOptions{
		DestroyUnreferencedDisks: r.params.bool("destroy-unreferenced-disks"),
		SkipLock:                 r.params.bool("skiplock"),
	}))
}

func getConfig(r *request, vm datacentre.VM) (any, error) {
	if r.params.bool("current") {
		vm.Config = vm.Current
	}

	return configObject(vm), nil
}

func putConfig(r *request) (any, error) {
	set, del := configChange(r)

	return nil, r.dc.SetConfig(r.user, r.node(), r.vmid(), set, del)
}

func postConfig(r *request) (any, error) {
	set, del := configChange(r)

	return upid(r.dc.SetConfigTask(r.user, r.node(), r.vmid(), set, del))
}

func unlinkDisks(r *request) (any, error) {
	return nil, r.dc.SetConfig(r.user, r.node(), r.vmid(), nil, r.params.list("idlist"))
}

func resizeDisk(r *request) (any, error) {
	return upid(r.dc.ResizeDisk(r.user, r.node(), r.vmid(), r.params.get("disk"), r.params.get("size")))
}

func moveDisk(r *request) (any, error) {
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
}

func migrateVM(r *request) (any, error) {
	if to := r.params.get("targetstorage"); to != "" && to != "1" {
		return nil, datacentre.WrongParameter(
			"targetstorage", "the lab moves disks to storages of the same name only: leave it out, or state 1",
		)
	}

	return upid(r.dc.Migrate(r.user, r.node(), r.vmid(), datacentre.MigrateRequest{
		Target: r.params.get("target"), Online: r.params.bool("online"), WithLocalDisks: r.params.bool("with-local-disks"),
	}))
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
	if r.params.has("archive") {
		return nil, datacentre.WrongParameter("archive", "the lab restores no backups")
	}

	config := r.params.config("vmid", "node", "archive", "ha-managed", "import-working-storage")

	return upid(r.dc.CreateVM(r.user, r.node(), r.params.number("vmid", 0), config))
}

// configChange splits a change into what is set and what is removed.
func configChange(r *request) (datacentre.Config, []string) {
	return r.params.config("delete", "node", "vmid", "import-working-storage"), r.params.list("delete")
}

func cloneVM(r *request) (any, error) {
	c := datacentre.CloneRequest{
		NewID:       r.params.number("newid", 0),
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

// pending lists what the VM runs with, and what of its configuration waits for its next start.
func pending(_ *request, vm datacentre.VM) (any, error) {
	keys := maps.Clone(vm.Current)
	maps.Copy(keys, vm.Config)

	list := []object{}

	for _, k := range slices.Sorted(maps.Keys(keys)) {
		row := object{"key": k}
		value, has := vm.Current[k]
		next, stays := vm.Config[k]

		if has {
			row["value"] = typed(k, shown(k, value))
		}

		switch {
		case !stays:
			row["delete"] = 1
		case !has || next != value:
			row["pending"] = typed(k, shown(k, next))
		}

		list = append(list, row)
	}

	return append(list, object{"key": "digest", "value": vm.Digest}), nil
}
