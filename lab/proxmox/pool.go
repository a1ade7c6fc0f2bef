package proxmox

import (
	"strconv"

	"talos-proxmox/lab/datacentre"
)

var poolCalls = map[string]handler{
	"GET /pools":             listPools,
	"POST /pools":            postPool,
	"PUT /pools":             updatePool,
	"DELETE /pools":          deletePool,
	"GET /pools/{poolid}":    on(namedPool(""), getPool),
	"PUT /pools/{poolid}":    updatePool,
	"DELETE /pools/{poolid}": deletePool,
}

func postPool(r *request) (any, error) {
	return nil, r.dc.AddPool(datacentre.Pool{ID: r.params["poolid"], Comment: r.params["comment"]})
}

func deletePool(r *request) (any, error) { return nil, r.dc.DeletePool(r.fill("{poolid}")) }

func listPools(r *request) (any, error) {
	if r.params.Has("poolid") { // who names a pool is shown it
		p, err := namedPool("")(r)

		return []object{poolInfo(r, p)}, err
	}

	return rows(ordered(r.dc.Pools()), func(p datacentre.Pool) object {
		if !r.dc.Allowed(r.user, "/pool/"+p.ID, "Pool.Audit") {
			return nil
		}

		o := poolInfo(r, p)
		delete(o, "members")

		return o
	}), nil
}

// namedPool finds a pool; what a change fails at begins with what fails.
func namedPool(failed string) func(*request) (datacentre.Pool, error) {
	return named((*datacentre.Datacentre).Pools, "{poolid}", failed+"pool '{poolid}' does not exist")
}

func getPool(r *request, p datacentre.Pool) (any, error) { return poolInfo(r, p), nil }

func poolInfo(r *request, p datacentre.Pool) object {
	o := object{"poolid": p.ID, "members": rows(r.dc.VMs(), func(vm datacentre.VM) object {
		if vm.Pool != p.ID {
			return nil
		}

		o := vmResource(r.dc, vm)
		delete(o, "tags")

		return o
	})}
	add(o, "comment", p.Comment)

	return o
}

func updatePool(r *request) (any, error) {
	if r.params.Has("storage") {
		return nil, datacentre.WrongParameter("storage", "the lab's pools have machines alone")
	}

	id := r.fill("{poolid}")

	var vms []int

	for _, v := range r.params.List("vms") {
		n, err := strconv.Atoi(v)
		if err != nil {
			return nil, err
		}

		if err := r.dc.Authorise(r.user, "/vms/"+v, modifiers("/vms/"+v)...); err != nil {
			return nil, err
		}

		vms = append(vms, n)
	}

	if err := checkMembers(r, id, vms); err != nil {
		return nil, err
	}

	p, err := namedPool("update pools failed: ")(r)
	if err != nil {
		return nil, err
	}

	if r.params.Has("comment") {
		p.Comment = r.params["comment"]
		r.dc.SetPool(p)
	}

	if r.params.Bool("delete") {
		id = ""
	}

	r.dc.MoveToPool(id, vms...)

	return nil, nil
}

func poolError(format string, a ...any) error {
	return datacentre.Refuse("update pools failed: "+format, a...)
}

func checkMembers(r *request, id string, vms []int) error {
	remove, move := r.params.Bool("delete"), r.params.Bool("allow-move")

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
