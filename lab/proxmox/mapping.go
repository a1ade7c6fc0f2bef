package proxmox

import (
	"maps"
	"net/http"

	"talos-proxmox/lab/datacentre"
)

var mappingCalls = func() map[string]handler {
	calls := mappingKind{datacentre.PCIMappings, "pci"}.calls()
	maps.Copy(calls, mappingKind{datacentre.USBMappings, "usb"}.calls())

	return calls
}()

// mappingKind is a kind of resource mappings, by its name in paths and errors.
type mappingKind struct {
	datacentre.Kind

	name string
}

func (k mappingKind) calls() map[string]handler {
	path, records := "/cluster/mapping/"+k.name, k.records()

	return map[string]handler{
		"GET " + path:           records.list,
		"POST " + path:          records.create,
		"GET " + path + "/{id}": records.show,
		"PUT " + path + "/{id}": records.update,
		"DELETE " + path + "/{id}": func(r *request) (any, error) {
			r.dc.Delete(k.Kind, r.vars["id"]) // a missing mapping is not an error

			return nil, nil
		},
	}
}

func (k mappingKind) records() recordKind {
	return recordKind{
		Kind: k.Kind, createCall: "POST /cluster/mapping/" + k.name, idTemplate: "{id}", errorSubject: "hardware mapping",
		errNotFound: func(r *request) error {
			if r.route.method == http.MethodGet {
				return datacentre.Refuse("mapping '%s' not found", r.vars["id"])
			}

			return datacentre.Refuse("update hardware mapping failed: %s ID '%s' does not exist", k.name, r.vars["id"])
		},
		errExists: func(r *request) error {
			return datacentre.Refuse("create hardware mapping failed: %s ID '%s' already defined", k.name, r.params["id"])
		},
		isVisible: func(r *request, id string, _ datacentre.Config) bool {
			return r.dc.Allowed(r.user, "/mapping/"+k.name+"/"+id, "Mapping.Modify", "Mapping.Use", "Mapping.Audit")
		},
		addToRow: func(r *request, _ string, _ datacentre.Config, o object) {
			o["type"], o["digest"] = k.name, r.dc.MappingDigest(k.Kind)
		},
		prepare: func(r *request, _ string, old, record datacentre.Config) error {
			if !record.Bool("mdev") { // PVE writes only true
				delete(record, "mdev")
			}

			switch {
			case r.params.Has("digest") && r.params["digest"] != r.dc.MappingDigest(k.Kind):
				return datacentre.Refuse(
					"update hardware mapping failed: detected modified configuration - file changed by other user? Try again.",
				)
			case old != nil && !r.params.Has("map"):
				return datacentre.Refuse("update hardware mapping failed: missing value for required option 'map'")
			default:
				return nil
			}
		},
	}
}
