package proxmox

import (
	"talos-proxmox/lab/datacentre"
)

var mappingCalls = map[string]handler{
	"GET /cluster/mapping/pci":         listMappings,
	"POST /cluster/mapping/pci":        postMapping,
	"GET /cluster/mapping/pci/{id}":    on(namedMapping("mapping '{id}' not found"), getMapping),
	"PUT /cluster/mapping/pci/{id}":    on(namedMapping("update hardware mapping failed: pci ID '{id}' does not exist"), updateMapping),
	"DELETE /cluster/mapping/pci/{id}": deleteMapping,
}

func listMappings(r *request) (any, error) {
	return rows(ordered(r.dc.Mappings()), func(m datacentre.Mapping) object {
		if !r.dc.Allowed(r.user, "/mapping/pci/"+m.ID, "Mapping.Modify", "Mapping.Use", "Mapping.Audit") {
			return nil
		}

		o := mappingRow(r.dc, m)
		o["id"] = m.ID

		return o
	}), nil
}

func postMapping(r *request) (any, error) {
	id := r.params["id"]
	if _, absent := namedMapping("")(r); absent == nil {
		return nil, datacentre.Refuse("create hardware mapping failed: pci ID '%s' already defined", id)
	}

	r.dc.SetMapping(datacentre.Mapping{
		ID: id, Description: r.params["description"], MDev: r.params.Bool("mdev"), Map: r.params.Values("map"),
	})

	return nil, nil
}

func getMapping(r *request, m datacentre.Mapping) (any, error) { return mappingRow(r.dc, m), nil }

func deleteMapping(r *request) (any, error) {
	r.dc.DeleteMapping(r.vars["id"]) // one that is not there is no error

	return nil, nil
}

func namedMapping(absent string) func(*request) (datacentre.Mapping, error) {
	return named((*datacentre.Datacentre).Mappings, "{id}", absent)
}

// mappingRow is a mapping as its file has it; true values alone are written.
func mappingRow(dc *datacentre.Datacentre, m datacentre.Mapping) object {
	o := object{"map": append([]string{}, m.Map...), "type": "pci", "digest": dc.MappingDigest()}
	add(o, "description", m.Description)

	if m.MDev {
		o["mdev"] = 1
	}

	return o
}

func updateMapping(r *request, m datacentre.Mapping) (any, error) {
	failed := func(why string) error { return datacentre.Refuse("update hardware mapping failed: %s", why) }

	if r.params.Has("digest") && r.params["digest"] != r.dc.MappingDigest() {
		return nil, failed("detected modified configuration - file changed by other user? Try again.")
	}

	if !r.params.Has("map") {
		return nil, failed("missing value for required option 'map'")
	}

	m.Map = r.params.Values("map")

	if r.params.Has("description") {
		m.Description = r.params["description"]
	}

	if r.params.Has("mdev") {
		m.MDev = r.params.Bool("mdev")
	}

	for _, k := range r.params.List("delete") {
		switch k {
		case "description":
			m.Description = ""
		case "mdev":
			m.MDev = false
		default:
			return nil, failed("no such option '" + k + "'")
		}
	}

	r.dc.SetMapping(m)

	return nil, nil
}
