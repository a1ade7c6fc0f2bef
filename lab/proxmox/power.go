package proxmox

import (
	"maps"
	"net/netip"

	"talos-proxmox/lab/datacentre"
)

func currentStatus(r *request, vm datacentre.VM) (any, error) {
	o := vmRow(r.dc, vm)
	o["qmpstatus"], o["ha"] = o["status"], object{"managed": 0}

	if datacentre.ParseProperties(vm.Config["agent"], "enabled").Bool("enabled") {
		o["agent"] = 1
	}

	if vm.Config["vga"] != "" {
		o["clipboard"] = nil
	}

	if vm.Running {
		maps.Copy(o, fixed("running VM"))
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
