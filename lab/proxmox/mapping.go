package proxmox

import (
	"fmt"
	"slices"

	"talos-proxmox/lab/datacentre"
)

func mappingRoutes() []route {
	const one = "/cluster/mapping/pci/{id}"

	return []route{
		{method: "GET", path: "/cluster/mapping", handle: index("name", "dir", "pci", "usb")},
		{method: "GET", path: "/cluster/mapping/pci", params: "check-node", handle: func(r *request) (any, error) {
			list := []object{}

			for _, m := range r.dc.Mappings() {
				if !r.dc.Allowed(r.user, "/mapping/pci/"+m.ID, "Mapping.Modify", "Mapping.Use", "Mapping.Audit") {
					continue
				}

				o := mappingRow(r.dc, m)
				o["id"] = m.ID

				if node := r.params.get("check-node"); node != "" {
					o["checks"] = mappingChecks(r, m, node)
				}

				list = append(list, o)
			}

			return list, nil
		}},
		{
			method:    "POST",
			path:      "/cluster/mapping/pci",
			params:    "id* map* description live-migration-capable mdev",
			privilege: "Mapping.Modify",
			path2:     "/mapping/pci", handle: func(r *request) (any, error) {
				id := r.params.get("id")
				if _, ok := findMapping(r, id); ok {
					return nil, &datacentre.Error{
						Status: 500, Message: "create hardware mapping failed: pci ID '" + id + "' already defined",
					}
				}

				r.dc.SetMapping(datacentre.Mapping{
					ID: id, Description: r.params.get("description"), MDev: r.params.bool("mdev"), Map: r.params["map"],
					LiveMigration: r.params.bool("live-migration-capable"),
				})

				return nil, nil
			},
		},
		{
			method: "GET",
			path:   one,
			allow:  maySeeMapping,
			handle: onMapping("mapping '%s' not found",
				func(r *request, m datacentre.Mapping) (any, error) { return mappingRow(r.dc, m), nil }),
		},
		{
			method:    "PUT",
			path:      one,
			params:    "map description delete digest live-migration-capable mdev",
			privilege: "Mapping.Modify",
			path2:     "/mapping/pci/{id}",
			handle:    onMapping("update hardware mapping failed: pci ID '%s' does not exist", updateMapping),
		},
		{
			method:    "DELETE",
			path:      one,
			privilege: "Mapping.Modify",
			path2:     "/mapping/pci",
			handle: func(r *request) (any, error) {
				r.dc.DeleteMapping(r.vars["id"]) // one that is not there is no error

				return nil, nil
			},
		},
	}
}

// maySeeMapping gives no reason for a refusal.
func maySeeMapping(r *request) error {
	if !r.dc.Allowed(r.user, "/mapping/pci/"+r.vars["id"], "Mapping.Use", "Mapping.Modify", "Mapping.Audit") {
		return datacentre.Forbidden("")
	}

	return nil
}

func findMapping(r *request, id string) (datacentre.Mapping, bool) {
	list := r.dc.Mappings()
	i := slices.IndexFunc(list, func(m datacentre.Mapping) bool { return m.ID == id })

	if i < 0 {
		return datacentre.Mapping{}, false
	}

	return list[i], true
}

func onMapping(absent string, h func(*request, datacentre.Mapping) (any, error)) func(*request) (any, error) {
	return func(r *request) (any, error) {
		m, ok := findMapping(r, r.vars["id"])
		if !ok {
			return nil, &datacentre.Error{Status: 500, Message: fmt.Sprintf(absent, r.vars["id"])}
		}

		return h(r, m)
	}
}

// mappingRow is a mapping as its file has it; true values alone are written.
func mappingRow(dc *datacentre.Datacentre, m datacentre.Mapping) object {
	o := object{"map": append([]string{}, m.Map...), "type": "pci", "digest": dc.MappingDigest()}
	add(o, "description", m.Description)

	if m.MDev {
		o["mdev"] = 1
	}

	if m.LiveMigration {
		o["live-migration-capable"] = 1
	}

	return o
}

func mappingChecks(r *request, m datacentre.Mapping, node string) []object {
	if node == "localhost" {
		node = r.server.host
	}

	list := []object{}
	for _, c := range r.dc.CheckMapping(m, node) {
		list = append(list, object{"severity": c.Severity, "message": c.Message})
	}

	return list
}

func updateMapping(r *request, m datacentre.Mapping) (any, error) {
	if r.params.has("digest") && r.params.get("digest") != r.dc.MappingDigest() {
		return nil, &datacentre.Error{
			Status:  500,
			Message: "update hardware mapping failed: detected modified configuration - file changed by other user? Try again.",
		}
	}

	failed := func(why string) error {
		return &datacentre.Error{Status: 500, Message: "update hardware mapping failed: " + why}
	}

	if !r.params.has("map") {
		return nil, failed("missing value for required option 'map'")
	}

	m.Map = r.params["map"]

	if r.params.has("description") {
		m.Description = r.params.get("description")
	}

	if r.params.has("mdev") {
		m.MDev = r.params.bool("mdev")
	}

	if r.params.has("live-migration-capable") {
		m.LiveMigration = r.params.bool("live-migration-capable")
	}

	for _, k := range r.params.list("delete") {
		switch k {
		case "description":
			m.Description = ""
		case "mdev":
			m.MDev = false
		case "live-migration-capable":
			m.LiveMigration = false
		default:
			return nil, failed("no such option '" + k + "'")
		}
	}

	r.dc.SetMapping(m)

	return nil, nil
}
