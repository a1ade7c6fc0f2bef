package proxmox

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"talos-proxmox/lab/datacentre"
)

// haCalls are those of Proxmox 9, where groups of resources have become rules. Proxmox 8 has no rules.
var haCalls = map[string]handler{
	"GET /cluster/ha/resources":          haResources().list,
	"POST /cluster/ha/resources":         createHAResource,
	"GET /cluster/ha/resources/{sid}":    withHAResource(haResources().show),
	"PUT /cluster/ha/resources/{sid}":    withHAResource(updateHAResource),
	"DELETE /cluster/ha/resources/{sid}": deleteHAResource,
	"GET /cluster/ha/rules":              sinceProxmox9(haRules().list),
	"POST /cluster/ha/rules":             sinceProxmox9(haRules().create),
	"GET /cluster/ha/rules/{rule}":       sinceProxmox9(haRules().show),
	"PUT /cluster/ha/rules/{rule}":       sinceProxmox9(haRules().update),
	"DELETE /cluster/ha/rules/{rule}": sinceProxmox9(func(r *request) (any, error) {
		r.dc.Delete(datacentre.HARules, r.vars["rule"]) // a missing rule is not an error

		return nil, nil
	}),
	"GET /cluster/ha/status/current": haStatus,
}

func sinceProxmox9(h handler) handler {
	return func(r *request) (any, error) {
		if r.dc.Release() == datacentre.PVE8 {
			return nil, errNoMethod(r.route.method, r.fill(r.route.path))
		}

		return h(r)
	}
}

func haResources() recordKind {
	return recordKind{
		Kind: datacentre.HAResources, createCall: "POST /cluster/ha/resources", idTemplate: "{sid}",
		errNotFound: func(r *request) error { return datacentre.Refuse("no such resource '%s'", r.vars["sid"]) },
		addToRow: func(r *request, id string, _ datacentre.Config, o object) {
			o["sid"], o["type"], o["digest"] = id, "vm", r.dc.MappingDigest(datacentre.HAResources)
		},
	}
}

// haVMID returns the VMID of a resource's id, whose short form is the VMID.
func haVMID(r *request) (vmid int, err error) {
	id := r.vars["sid"]
	if id == "" {
		id = r.params["sid"]
	}

	if vmid, err = strconv.Atoi(strings.TrimPrefix(id, "vm:")); err != nil {
		return 0, datacentre.Refuse("unable to parse service id '%s'", id)
	}

	if _, exists := r.dc.VM(vmid); !exists {
		err = datacentre.Refuse("resource '%s' does not exist in cluster", datacentre.HAResourceID(vmid))
	}

	return vmid, err
}

// withHAResource gives the id in the path its long form.
func withHAResource(h handler) handler {
	return func(r *request) (any, error) {
		if vmid, _ := haVMID(r); vmid != 0 {
			r.vars["sid"] = datacentre.HAResourceID(vmid)
		}

		return h(r)
	}
}

// haResourceOf returns a record changed by the call's parameters.
func haResourceOf(r *request, old datacentre.Config) datacentre.Config {
	record := datacentre.Config{}
	for _, name := range []string{"comment", "failback", "max_relocate", "max_restart", "state"} {
		if record[name] = old[name]; r.params.Has(name) {
			record[name] = r.params[name]
		}
	}

	for _, name := range r.params.List("delete") {
		delete(record, name)
	}

	return record
}

func createHAResource(r *request) (any, error) {
	vmid, err := haVMID(r)
	if err != nil {
		return nil, err
	}

	if r.params["group"] != "" {
		return nil, datacentre.Refuse("invalid parameter 'group': ha groups have been migrated to rules")
	}

	if _, taken := r.dc.Record(datacentre.HAResources, datacentre.HAResourceID(vmid)); taken {
		return nil, datacentre.Refuse(
			"create resource failed: resource ID '%s' already defined", datacentre.HAResourceID(vmid),
		)
	}

	r.dc.PutHAResource(vmid, haResourceOf(r, datacentre.Config{}))

	return nil, nil
}

func updateHAResource(r *request) (any, error) {
	old, err := haResources().find(r)
	if err != nil {
		return nil, err
	}

	vmid, err := haVMID(r)
	if err != nil {
		return nil, err
	}

	if _, state, _ := r.dc.HAState(vmid); state == "error" && r.params["state"] != "disabled" {
		return nil, datacentre.Refuse(
			"service '%s' in error state, must be disabled and fixed first", datacentre.HAResourceID(vmid),
		)
	}

	r.dc.PutHAResource(vmid, haResourceOf(r, old))

	return nil, nil
}

func deleteHAResource(r *request) (any, error) {
	return withHAResource(func(r *request) (any, error) {
		if _, err := haResources().find(r); err != nil {
			return nil, datacentre.Refuse("cannot delete service '%s', not HA managed!", r.vars["sid"])
		}

		vmid, _ := strconv.Atoi(strings.TrimPrefix(r.vars["sid"], "vm:"))
		r.dc.DeleteHAResource(vmid)

		return nil, nil
	})(r)
}

func haRules() recordKind {
	return recordKind{
		Kind: datacentre.HARules, createCall: "POST /cluster/ha/rules", idTemplate: "{rule}",
		errNotFound: func(r *request) error {
			if r.route.method == http.MethodGet {
				return datacentre.Refuse("no such ha rule '%s'", r.vars["rule"])
			}

			return datacentre.Refuse("update HA rules failed: HA rule '%s' does not exist", r.vars["rule"])
		},
		errExists: func(r *request) error {
			return datacentre.Refuse("create ha rule failed: HA rule '%s' already defined", r.params["rule"])
		},
		addToRow: func(r *request, _ string, record datacentre.Config, o object) {
			o["type"], o["digest"] = record["type"], r.dc.MappingDigest(datacentre.HARules)
		},
		prepare: func(r *request, name string, old, record datacentre.Config) error {
			if old != nil {
				record["type"] = old["type"]
			}

			err := r.dc.CheckHARule(name, record)
			if refused := (*datacentre.Error)(nil); errors.As(err, &refused) && len(refused.Fields) == 0 {
				prefix := "create ha rule failed: "
				if old != nil {
					prefix = "update HA rules failed: "
				}

				return datacentre.Refuse("%s%s", prefix, refused.Message)
			}

			return err
		},
	}
}

func haStatus(r *request) (any, error) {
	list := []object{{
		"id": "quorum", "type": "quorum", "node": r.server.host, "quorate": boolInt(r.dc.Quorate()),
		"status": map[bool]string{true: "OK", false: "No quorum on node '" + r.server.host + "'!"}[r.dc.Quorate()],
	}}

	machines := r.dc.VMs()
	slices.SortFunc(machines, func(a, b datacentre.VM) int { return a.ID - b.ID })

	return append(list, rows(machines, func(vm datacentre.VM) object {
		record, found := r.dc.Record(datacentre.HAResources, datacentre.HAResourceID(vm.ID))
		if !found {
			return nil
		}

		sid := datacentre.HAResourceID(vm.ID)
		wanted, state, managed := r.dc.HAState(vm.ID)

		switch {
		case !managed:
			wanted, state = "ignored", "ignored"
		case state == "":
			state = "queued"
		}

		return object{
			"id": "service:" + sid, "sid": sid, "type": "service", "node": vm.Host, "state": state, "crm_state": state,
			"request_state": wanted, "max_restart": record.Number("max_restart", 1),
			"max_relocate": record.Number("max_relocate", 1), "status": sid + " (" + vm.Host + ", " + state + ")",
		}
	})...), nil
}
