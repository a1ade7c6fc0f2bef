package proxmox

import (
	"maps"
	"slices"
	"strings"

	"talos-proxmox/lab/datacentre"
)

var qemuCalls = map[string]handler{
	"GET /nodes/{node}/qemu":                                     listVMs,
	"POST /nodes/{node}/qemu":                                    taskWith((*datacentre.Datacentre).CreateVM),
	"DELETE /nodes/{node}/qemu/{vmid}":                           taskWith((*datacentre.Datacentre).DestroyVM),
	"GET /nodes/{node}/qemu/{vmid}/config":                       withSubject((*request).vm, getConfig),
	"PUT /nodes/{node}/qemu/{vmid}/config":                       putConfig,
	"POST /nodes/{node}/qemu/{vmid}/config":                      taskWith((*datacentre.Datacentre).SetConfigTask),
	"GET /nodes/{node}/qemu/{vmid}/pending":                      withSubject((*request).vm, pending),
	"POST /nodes/{node}/qemu/{vmid}/clone":                       taskWith((*datacentre.Datacentre).CloneVM),
	"POST /nodes/{node}/qemu/{vmid}/template":                    task((*datacentre.Datacentre).ConvertToTemplate),
	"PUT /nodes/{node}/qemu/{vmid}/resize":                       taskWith((*datacentre.Datacentre).ResizeDisk),
	"POST /nodes/{node}/qemu/{vmid}/move_disk":                   taskWith((*datacentre.Datacentre).MoveDisk),
	"POST /nodes/{node}/qemu/{vmid}/migrate":                     taskWith((*datacentre.Datacentre).Migrate),
	"PUT /nodes/{node}/qemu/{vmid}/unlink":                       unlinkDisks,
	"GET /nodes/{node}/qemu/{vmid}/status/current":               withSubject((*request).vm, currentStatus),
	"POST /nodes/{node}/qemu/{vmid}/status/start":                task((*datacentre.Datacentre).Start),
	"POST /nodes/{node}/qemu/{vmid}/status/stop":                 task((*datacentre.Datacentre).Stop),
	"POST /nodes/{node}/qemu/{vmid}/status/reset":                task((*datacentre.Datacentre).Reset),
	"POST /nodes/{node}/qemu/{vmid}/status/shutdown":             taskWith((*datacentre.Datacentre).Shutdown),
	"POST /nodes/{node}/qemu/{vmid}/status/reboot":               taskWith((*datacentre.Datacentre).Reboot),
	"GET /nodes/{node}/qemu/{vmid}/agent/network-get-interfaces": agentInterfaces,
}

// task returns a handler that starts a task on the call's VM.
func task(start func(dc *datacentre.Datacentre, user, host string, vmid int) (string, error)) handler {
	return func(r *request) (any, error) { return start(r.dc, r.user, r.node(), r.vmid()) }
}

// taskWith is task with the call's parameters.
func taskWith(
	start func(dc *datacentre.Datacentre, user, host string, vmid int, p datacentre.Config) (string, error),
) handler {
	return func(r *request) (any, error) {
		return start(r.dc, r.user, r.node(), r.vmid(), r.params)
	}
}

func getConfig(r *request, vm datacentre.VM) (any, error) {
	if r.params.Bool("current") {
		vm.Config = vm.Current
	}

	out := object{"digest": vm.Digest}
	for k, v := range vm.Config {
		out[k] = configValue(k, v)
	}

	return out, nil
}

func putConfig(r *request) (any, error) {
	return nil, r.dc.SetConfig(r.user, r.node(), r.vmid(), r.params)
}

func unlinkDisks(r *request) (any, error) {
	return nil, r.dc.SetConfig(
		r.user, r.node(), r.vmid(), datacentre.Config{"delete": strings.Join(r.params.List("idlist"), ",")},
	)
}

func listVMs(r *request) (any, error) {
	return rows(r.dc.VMs(), func(vm datacentre.VM) object {
		if vm.Host != r.node() || !r.canSeeVM(vm.ID) {
			return nil
		}

		return vmRow(r.dc, vm)
	}), nil
}

// pending lists what the VM runs with, and what is pending until its next start.
func pending(_ *request, vm datacentre.VM) (any, error) {
	keys := maps.Clone(vm.Current)
	maps.Copy(keys, vm.Config)

	list := []object{}

	for _, k := range slices.Sorted(maps.Keys(keys)) {
		row := object{"key": k}
		value, runs := vm.Current[k]
		next, set := vm.Config[k]

		if runs {
			row["value"] = configValue(k, value)
		}

		switch {
		case !set:
			row["delete"] = 1
		case !runs || next != value:
			row["pending"] = configValue(k, next)
		}

		list = append(list, row)
	}

	return append(list, object{"key": "digest", "value": vm.Digest}), nil
}

func currentStatus(r *request, vm datacentre.VM) (any, error) {
	o := vmRow(r.dc, vm)
	o["qmpstatus"], o["ha"] = o["status"], object{"managed": 0}

	if _, state, managed := r.dc.HAState(vm.ID); managed {
		o["ha"] = object{"managed": 1, "state": state}
	}

	if vm.Config.Properties("agent").Bool("enabled") {
		o["agent"] = 1
	}

	if vm.Config["vga"] != "" {
		o["clipboard"] = nil
	}

	if vm.Running {
		maps.Copy(o, staticFields("running VM"))
	}

	return o, nil
}

func agentInterfaces(r *request) (any, error) {
	list, err := r.dc.Agent(r.node(), r.vmid())
	if err != nil {
		return nil, err
	}

	result := []object{}

	for _, i := range list {
		addresses := []object{}
		for _, a := range i.Addresses {
			addresses = append(
				addresses, object{"ip-address": a.Addr().String(), "prefix": a.Bits(), "ip-address-type": family[a.Addr().Is4()]},
			)
		}

		result = append(result, object{"name": i.Name, "hardware-address": i.MAC, "ip-addresses": addresses})
	}

	return object{"result": result}, nil
}

var family = map[bool]string{true: "ipv4", false: "ipv6"}
