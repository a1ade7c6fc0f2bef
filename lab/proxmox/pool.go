package proxmox

import (
	"fmt"
	"slices"
	"strconv"

	"talos-proxmox/lab/datacentre"
)

func poolRoutes() []route {
	return []route{
		{method: "GET", path: "/pools", params: "poolid type", handle: listPools},
		{
			method:    "POST",
			path:      "/pools",
			params:    "poolid* comment",
			privilege: "Pool.Allocate",
			path2:     "/pool/{poolid}",
			handle: func(r *request) (any, error) {
				return done(r.dc.AddPool(datacentre.Pool{ID: r.params.get("poolid"), Comment: r.params.get("comment")}))
			},
		},
		{
			method:    "PUT",
			path:      "/pools",
			params:    "poolid* allow-move comment delete storage vms",
			privilege: "Pool.Allocate",
			path2:     "/pool/{poolid}",
			handle:    updatePool,
		},
		{
			method:    "DELETE",
			path:      "/pools",
			params:    "poolid*",
			privilege: "Pool.Allocate",
			path2:     "/pool/{poolid}",
			handle: func(r *request) (any, error) {
				return done(r.dc.DeletePool(r.params.get("poolid")))
			},
		},
		{
			method:    "GET",
			path:      "/pools/{poolid}",
			params:    "type",
			privilege: "Pool.Audit",
			path2:     "/pool/{poolid}",
			handle:    getPool,
		},
		{
			method:    "PUT",
			path:      "/pools/{poolid}",
			params:    "allow-move comment delete storage vms",
			privilege: "Pool.Allocate",
			path2:     "/pool/{poolid}",
			handle:    updatePool,
		},
		{
			method:    "DELETE",
			path:      "/pools/{poolid}",
			privilege: "Pool.Allocate",
			path2:     "/pool/{poolid}",
			handle: func(r *request) (any, error) {
				return done(r.dc.DeletePool(r.vars["poolid"]))
			},
		},
	}
}

func listPools(r *request) (any, error) {
	list := []object{}
	wanted := r.params.get("poolid")

	for _, p := range r.dc.Pools() {
		// Who names a pool is shown it.
		if wanted != p.ID && !r.dc.Allowed(r.user, "/pool/"+p.ID, "Pool.Audit") {
			continue
		}

		o := object{"poolid": p.ID}
		add(o, "comment", p.Comment)

		if wanted == p.ID {
			o["members"] = members(r, p)
		}

		if wanted == "" || wanted == p.ID {
			list = append(list, o)
		}
	}

	if wanted != "" && len(list) == 0 {
		return nil, noPool(wanted)
	}

	return list, nil
}

func noPool(id string) error {
	return &datacentre.Error{Status: 500, Message: "pool '" + id + "' does not exist"}
}

func getPool(r *request) (any, error) {
	for _, p := range r.dc.Pools() {
		if p.ID == r.vars["poolid"] {
			o := object{"poolid": p.ID, "members": members(r, p)}
			add(o, "comment", p.Comment)

			return o, nil
		}
	}

	return nil, noPool(r.vars["poolid"])
}

func members(r *request, p datacentre.Pool) []object {
	list := []object{}

	for _, vm := range r.dc.VMs() {
		if vm.Pool == p.ID {
			o := vmRow(r.dc, vm)
			o["id"], o["type"], o["node"], o["maxcpu"] = fmt.Sprintf("qemu/%d", vm.ID), "qemu", vm.Host, o["cpus"]
			o["template"], o["diskread"], o["diskwrite"] = flag(vm.Template), 0, 0
			delete(o, "cpus")
			delete(o, "tags")
			list = append(list, o)
		}
	}

	for _, h := range r.dc.Hosts() {
		for _, s := range r.dc.Storages(h.Name) {
			if slices.Contains(p.Storages, s.Name) {
				list = append(list, storageResource(s))
			}
		}
	}

	return list
}

func updatePool(r *request) (any, error) {
	id := r.fill("{poolid}")
	remove, move := r.params.bool("delete"), r.params.bool("allow-move")

	var vms []int

	for _, v := range r.params.list("vms") {
		n, err := strconv.Atoi(v)
		if err != nil {
			return nil, datacentre.ParameterError(
				map[string]string{"vms": "invalid format - value does not look like a valid VM ID"},
			)
		}

		if err := r.dc.Authorise(r.user, "/vms/"+v, modifiers("/vms/"+v)...); err != nil {
			return nil, err
		}

		vms = append(vms, n)
	}

	if err := checkMembers(r, id, vms, remove, move); err != nil {
		return nil, err
	}

	err := r.dc.UpdatePool(id, func(p *datacentre.Pool) error {
		if r.params.has("comment") {
			p.Comment = r.params.get("comment")
		}

		for _, s := range r.params.list("storage") {
			switch member := slices.Contains(p.Storages, s); {
			case remove && !member:
				return poolError("Storage '%s' is not a pool member", s)
			case !remove && member:
				return poolError("Storage '%s' is already a pool member", s)
			}

			p.Storages = slices.DeleteFunc(p.Storages, func(o string) bool { return o == s })
			if !remove {
				p.Storages = append(p.Storages, s)
			}
		}

		return nil
	})
	if err != nil {
		return nil, err
	}

	for _, n := range vms {
		pool := id
		if remove {
			pool = ""
		}

		if err := r.dc.SetPool(n, pool); err != nil {
			return nil, err
		}
	}

	return nil, nil
}

func poolError(format string, a ...any) error {
	return &datacentre.Error{Status: 500, Message: "update pools failed: " + fmt.Sprintf(format, a...)}
}

func checkMembers(r *request, id string, vms []int, remove, move bool) error {
	for _, n := range vms {
		vm, ok := r.dc.VM(n)

		switch {
		case remove && vm.Pool != id:
			return poolError("VM %d is not a pool member", n)
		case remove:
		case !ok:
			return poolError("VM %d does not exist", n)
		case vm.Pool == id:
			return poolError("VM %d is already a pool member", n)
		case vm.Pool != "" && !move:
			return poolError("VM %d belongs already to pool '%s' and 'allow-move' is not set", n, vm.Pool)
		}
	}

	return nil
}
