package proxmoxve

import (
	"context"
	"net/http"
	"strings"
)

const (
	typeMapping    = "proxmoxve:Hardware/mapping/pci:Pci"
	typeUSBMapping = "proxmoxve:Hardware/mapping/usb:Usb"
)

// pciMappingType and usbMappingType return the resource types of mappings.
func pciMappingType() *resourceType {
	return mappingType(typeMapping, "PCI", mappingTable(), mappingOrder)
}

func usbMappingType() *resourceType {
	return mappingType(typeUSBMapping, "USB", usbMappingTable(), []string{"id", "node", "path", "comment"})
}

// mappingType returns the resource type of mappings of a kind: one name for devices of several hosts, by which VMs pass
// them through. The order is that of an entry's options. As published, every error of a read but one, which Proxmox
// does not even use, means that the mapping does not exist: a refresh removes one that was deleted manually.
func mappingType(token, kind string, table attributes, order []string) *resourceType {
	at := pathIn("/cluster/mapping/" + strings.ToLower(kind))

	return entity{
		table: table, id: idFrom("name"), path: at, idParam: "id",
		isAbsent: func(err error) bool { return !strings.Contains(err.Error(), "no such resource") },
		request: func(plan object) multiForm {
			request := multiForm{"map": nil}

			for _, entry := range children(plan, "maps") {
				var o options
				for _, name := range order {
					o = append(o, attributes{name: table["maps"].fields[name]}.options(entry)...)
				}

				request["map"] = append(request["map"], o.String())
			}

			if text := str(plan, "comment"); text != "" {
				request["description"] = []string{text}
			}

			if flag(plan, "mediatedDevices") {
				request["mdev"] = []string{"1"}
			}

			return request
		},
		deletedParams: func(plan, state object) []string {
			var removed []string
			if str(plan, "comment") == "" && str(state, "comment") != "" {
				removed = append(removed, "description")
			}

			if _, known := table["mediatedDevices"]; known && !flag(plan, "mediatedDevices") {
				removed = append(removed, "mdev")
			}

			return removed
		},
		read: func(ctx context.Context, a *api, id string) (object, error) {
			var found struct {
				Map         []string
				Description any
				MDev        int
			}

			err := a.call(ctx, http.MethodGet, at(id), nil, &found)
			entries := []any{}

			for _, text := range found.Map {
				entries = append(entries, decodeMappingEntry(table, text))
			}

			values := object{"name": id, "comment": found.Description, "maps": entries}
			if _, known := table["mediatedDevices"]; known {
				values["mediatedDevices"] = found.MDev == 1
			}

			return values, err
		},
		messages: map[string]string{
			http.MethodPost:   "Could not create " + kind + " hardware mapping {id}.: creating hardware mapping {id}",
			http.MethodGet:    "Could not read " + kind + " hardware mapping: reading hardware mapping {id}",
			http.MethodPut:    "Could not update " + kind + " hardware mapping {id}.: udating hardware mapping {id}",
			http.MethodDelete: "Could not delete " + kind + " hardware mapping {id}.: deleting hardware mapping {id}",
		},
	}.resource(resourceType{
		token: token, uniqueName: true, framework: true, validate: checkMapping,
	})
}

// mappingTable has the properties of Hardware/mapping/pci:Pci. As published, a new name is not a replacement, but an
// update of a mapping that does not exist.
func mappingTable() attributes {
	const path = `not a valid Linux device path for hardware mapping of type "pci"`

	id := matching(`^[0-9A-Fa-f]{4}:[0-9A-Fa-f]{4}$`, `value must be a valid hardware mapping device ID, e.g. "8086:5916"`)

	return attributes{
		"comment":         {effect: InPlace, validate: comment},
		"mediatedDevices": {kind: boolean, fallback: false, effect: InPlace},
		"name":            {effect: InPlace},
		"maps": {kind: block, many: true, set: true, required: true, effect: InPlace, fields: attributes{
			"id":         {key: "id", required: true, validate: id},
			"iommuGroup": {key: "iommugroup", kind: integer, exact: true},
			"node":       {key: "node", required: true},
			"path": {
				key: "path", required: true, validate: matching(`^[a-f0-9]{4,}:[a-f0-9]{2}:[a-f0-9]{2}(\.[a-f0-9])?$`, path),
			},
			"subsystemId": {key: "subsystem-id", validate: id},
		}},
	}
}

// usbMappingTable has the properties of Hardware/mapping/usb:Usb.
func usbMappingTable() attributes {
	const path = `not a valid Linux device path for hardware mapping of type "usb"`

	return attributes{
		"comment": {effect: InPlace, validate: comment},
		"name":    {effect: InPlace},
		"maps": {kind: block, many: true, set: true, required: true, effect: InPlace, fields: attributes{
			"comment": {key: "description", validate: comment},
			"id":      mappingTable()["maps"].fields["id"],
			"node":    {key: "node", required: true},
			"path":    {key: "path", validate: matching(`^\d+-\d+(\.\d+)*$`, path)},
		}},
	}
}

// mappingOrder is the published provider's order of an entry's options, which Proxmox keeps.
var mappingOrder = []string{"id", "node", "path", "iommuGroup", "subsystemId"}

func checkMapping(c *checker, in object) {
	if entries, ok := in["maps"].([]any); ok && len(entries) == 0 {
		c.fail("maps", "Attribute map set must contain at least 1 elements, got: 0")
	}
}

// decodeMappingEntry sets only options that the entry has: iommuGroup 0 is valid.
func decodeMappingEntry(table attributes, text string) object {
	entry, options := object{}, parseOptions(text, "id")

	for name, a := range table["maps"].fields {
		if value, ok := options[a.key]; ok {
			entry[name] = a.decodeScalar(map[string]string{a.key: value})
		}
	}

	return entry
}
