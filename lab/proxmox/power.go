package proxmox

import (
	"net/netip"
	"time"

	"talos-proxmox/lab/datacentre"
)

func powerRoutes() []route {
	power := func(action, params string, h func(*request) (any, error)) route {
		return route{
			method:    "POST",
			path:      vmPath + "/status/" + action,
			params:    params,
			privilege: "VM.PowerMgmt",
			path2:     "/vms/{vmid}",
			handle: func(r *request) (any, error) {
				if r.params.bool("skiplock") && r.user != "root@pam" {
					return nil, datacentre.ParameterError(map[string]string{"skiplock": "Only root may use this option."})
				}

				return h(r)
			},
		}
	}

	return []route{
		{method: "GET", path: vmPath + "/status", handle: index("subdir", "current", "start", "stop", "reset", "shutdown", "reboot")},
		{
			method:    "GET",
			path:      vmPath + "/status/current",
			privilege: "VM.Audit",
			path2:     "/vms/{vmid}",
			handle:    onVM(currentStatus),
		},
		power("start",
			"force-cpu machine migratedfrom migration_network migration_type nets-host-mtu skiplock stateuri targetstorage timeout with-conntrack-state",
			func(r *request) (any, error) { return upid(r.dc.Start(r.user, r.node(), r.vmid())) }),
		power("stop", "keepActive migratedfrom overrule-shutdown skiplock timeout",
			func(r *request) (any, error) { return upid(r.dc.Stop(r.user, r.node(), r.vmid())) }),
		power("reset", "skiplock", func(r *request) (any, error) { return upid(r.dc.Reset(r.user, r.node(), r.vmid())) }),
		power("shutdown", "forceStop keepActive skiplock timeout", func(r *request) (any, error) {
			o, err := patience(r)
			if err != nil {
				return nil, err
			}

			return upid(r.dc.Shutdown(r.user, r.node(), r.vmid(), o))
		}),
		power("reboot", "timeout", func(r *request) (any, error) {
			o, err := patience(r)
			if err != nil {
				return nil, err
			}

			return upid(r.dc.Reboot(r.user, r.node(), r.vmid(), o))
		}),
		{
			method: "GET", path: vmPath + "/agent/network-get-interfaces", allow: mayAskAgent,
			handle: agentInterfaces,
		},
		{
			method: "POST", path: vmPath + "/agent/ping", allow: mayAskAgent,
			handle: func(r *request) (any, error) {
				if _, err := r.dc.Agent(r.node(), r.vmid()); err != nil {
					return nil, err
				}

				return object{"result": object{}}, nil
			},
		},
	}
}

func patience(r *request) (datacentre.ShutdownOptions, error) {
	seconds, err := r.params.number("timeout", 0)

	return datacentre.ShutdownOptions{
		Timeout: time.Duration(seconds) * time.Second, ForceStop: r.params.bool("forceStop"),
	}, err
}

func currentStatus(r *request, vm datacentre.VM) (any, error) {
	o := vmRow(r.dc, vm)
	o["qmpstatus"], o["ha"] = o["status"], object{"managed": 0}

	if datacentre.ParseProperties(vm.Config["agent"], "enabled").Bool("enabled") {
		o["agent"] = 1
	}

	if vm.Running {
		o["running-machine"], o["running-qemu"] = "pc-q35-10.1+pve0", "10.1.2"
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
				addresses, object{"ip-address": a.Addr().String(), "prefix": a.Bits(), "ip-address-type": family(a.Addr())},
			)
		}

		result = append(result, object{"name": i.Name, "hardware-address": i.MAC, "ip-addresses": addresses})
	}

	return object{"result": result}, nil
}

func family(a netip.Addr) string {
	if a.Is4() {
		return "ipv4"
	}

	return "ipv6"
}
