package proxmox

import (
	"net/http"

	"talos-proxmox/lab/datacentre"
)

var mappingCalls = map[string]handler{
	"GET /cluster/mapping/pci":         mappings().list,
	"POST /cluster/mapping/pci":        mappings().create,
	"GET /cluster/mapping/pci/{id}":    mappings().show,
	"PUT /cluster/mapping/pci/{id}":    mappings().update,
	"DELETE /cluster/mapping/pci/{id}": deleteMapping,
}

func mappings() recordKind {
	return recordKind{
		Kind: datacentre.Mappings, createCall: "POST /cluster/mapping/pci", idTemplate: "{id}", errorSubject: "hardware mapping",
		errNotFound: func(r *request) error {
			if r.route.method == http.MethodGet {
				return datacentre.Refuse("mapping '%s' not found", r.vars["id"])
			}

			return datacentre.Refuse("update hardware mapping failed: pci ID '%s' does not exist", r.vars["id"])
		},
		errExists: func(r *request) error {
			return datacentre.Refuse("create hardware mapping failed: pci ID '%s' already defined", r.params["id"])
		},
		isVisible: func(r *request, id string, _ datacentre.Config) bool {
			return r.dc.Allowed(r.user, "/mapping/pci/"+id, "Mapping.Modify", "Mapping.Use", "Mapping.Audit")
		},
		addToRow: func(r *request, _ string, _ datacentre.Config, o object) {
			o["type"], o["digest"] = "pci", r.dc.MappingDigest()
		},
		prepare: func(r *request, _ string, old, record datacentre.Config) error {
			if !record.Bool("mdev") { // PVE writes only true
				delete(record, "mdev")
			}

			switch {
			case r.params.Has("digest") && r.params["digest"] != r.dc.MappingDigest():
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

func deleteMapping(r *request) (any, error) {
	r.dc.Delete(datacentre.Mappings, r.vars["id"]) // a missing mapping is not an error

	return nil, nil
}
