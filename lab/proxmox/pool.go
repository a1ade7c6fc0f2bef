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
	"GET /pools/{poolid}":    getPool,
	"PUT /pools/{poolid}":    updatePool,
	"DELETE /pools/{poolid}": deletePool,
}

func postPool(r *request) (any, error) {
	return nil, r.dc.AddPool(datacentre.Pool{ID: r.params.get("poolid"), Comment: r.params.get("comment")})
}

func deletePool(r *request) (any, error) { return nil, r.dc.DeletePool(r.fill("{poolid}")) }

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
		_, err := namedPool(r, wanted, "")

		return nil, err
	}

	return list, nil
}

// namedPool finds a pool; what a change fails at begins with what fails.
func namedPool(r *request, id, failed string) (datacentre.Pool, error) {
	return find(r.dc.Pools(), func(p datacentre.Pool) bool { return p.ID == id }, failed+"pool '%s' does not exist", id)
}

func getPool(r *request) (any, error) {
	p, err := namedPool(r, r.vars["poolid"], "")
	o := object{"poolid": p.ID, "members": members(r, p)}
	add(o, "comment", p.Comment)

	return o, err
}

func members(r *request, p datacentre.Pool) []object {
	list := []object{}

	for _, vm := range r.dc.VMs() {
		if vm.Pool == p.ID {
			o := vmResource(r.dc, vm)
			delete(o, "tags")
			list = append(list, o)
		}
	}

	return list
}

func updatePool(r *request) (any, error) {
	if r.params.has("storage") {
		return nil, datacentre.WrongParameter("storage", "the lab's pools have machines alone")
	}

	id, failed := r.fill("{poolid}"), "update pools failed: "

	var vms []int

	for _, v := range r.params.list("vms") {
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

	p, err := namedPool(r, id, failed)
	if err != nil {
		return nil, err
	}

	if r.params.has("comment") {
		p.Comment = r.params.get("comment")
		r.dc.SetPool(p)
	}

	if r.params.bool("delete") {
		id = ""
	}

	r.dc.MoveToPool(id, vms...)

	return nil, nil
}

func poolError(format string, a ...any) error {
	return datacentre.Refuse("update pools failed: "+format, a...)
}

func checkMembers(r *request, id string, vms []int) error {
	remove, move := r.params.bool("delete"), r.params.bool("allow-move")

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
