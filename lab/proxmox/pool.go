package proxmox

import (
	"slices"
	"strconv"
	"strings"

	"talos-proxmox/lab/datacentre"
)

var poolCalls = map[string]handler{
	"GET /pools":             listPools,
	"POST /pools":            pools().create,
	"PUT /pools":             updatePool,
	"DELETE /pools":          pools().remove,
	"GET /pools/{poolid}":    pools().show,
	"PUT /pools/{poolid}":    updatePool,
	"DELETE /pools/{poolid}": pools().remove,
}

func pools() recordKind {
	return recordKind{
		Kind: datacentre.Pools, createCall: "POST /pools", idTemplate: "{poolid}", errorSubject: "pool",
		isVisible: func(r *request, id string, _ datacentre.Config) bool {
			return r.dc.Allowed(r.user, "/pool/"+id, "Pool.Audit")
		},
		detail: func(r *request, id string, _ datacentre.Config, o object) any {
			o["poolid"], o["members"] = id, rows(poolMembers(r, id), func(vm datacentre.VM) object {
				row := vmResource(r.dc, vm)
				delete(row, "tags")

				return row
			})

			return o
		},
		prepare: func(r *request, id string, _, _ datacentre.Config) error {
			parent := id[:max(strings.LastIndexByte(id, '/'), 0)]
			if _, ok := r.dc.Record(datacentre.Pools, parent); parent != "" && !ok {
				return datacentre.Refuse("create pool failed: parent '%s' of pool '%s' does not exist", parent, id)
			}

			return nil
		},
		checkRemoval: func(r *request, id string, _ datacentre.Config) error {
			for _, vm := range poolMembers(r, id) {
				return datacentre.Refuse("delete pool failed: pool '%s' is not empty (contains VM %d)", id, vm.ID)
			}

			return nil
		},
	}
}

func poolMembers(r *request, pool string) []datacentre.VM {
	return slices.DeleteFunc(r.dc.VMs(), func(vm datacentre.VM) bool { return vm.Pool != pool })
}

func listPools(r *request) (any, error) {
	if !r.params.Has("poolid") {
		return pools().list(r)
	}

	pool, err := pools().show(r) // naming a pool needs no permission

	return []any{pool}, err
}

func updatePool(r *request) (any, error) {
	if r.params.Has("storage") {
		return nil, datacentre.WrongParameter("storage", "the lab's pools contain only machines")
	}

	id := r.fill("{poolid}")

	var vms []int

	for _, v := range r.params.List("vms") {
		n, err := strconv.Atoi(v)
		if err != nil {
			return nil, err
		}

		if err := r.dc.Authorise(r.user, "/vms/"+v, modifyPrivileges("/vms/"+v)...); err != nil {
			return nil, err
		}

		vms = append(vms, n)
	}

	if err := checkMembers(r, id, vms); err != nil {
		return nil, err
	}

	pool, ok := r.dc.Record(datacentre.Pools, id)
	if !ok {
		return nil, errUpdatePool("pool '%s' does not exist", id)
	}

	if r.params.Has("comment") {
		pool["comment"] = r.params["comment"]
		r.dc.Put(datacentre.Pools, id, pool)
	}

	if r.params.Bool("delete") {
		id = ""
	}

	r.dc.MoveToPool(id, vms...)

	return nil, nil
}

func errUpdatePool(format string, a ...any) error {
	return datacentre.Refuse("update pools failed: "+format, a...)
}

func checkMembers(r *request, id string, vms []int) error {
	remove, move := r.params.Bool("delete"), r.params.Bool("allow-move")

	for _, n := range vms {
		vm, ok := r.dc.VM(n)

		switch {
		case remove && vm.Pool != id:
			return errUpdatePool("VM %d is not a pool member", n)
		case remove:
		case !ok:
			return errUpdatePool("VM %d does not exist", n)
		case vm.Pool == id:
			return errUpdatePool("VM %d is already a pool member", n)
		case vm.Pool != "" && !move:
			return errUpdatePool("VM %d belongs already to pool '%s' and 'allow-move' is not set", n, vm.Pool)
		}
	}

	return nil
}
