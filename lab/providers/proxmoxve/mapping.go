package proxmoxve

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

const (
	typeMapping = "proxmoxve:Hardware/mapping/pci:Pci"
	mappingPath = "/cluster/mapping/pci"
)

// mappingType is the resource of PCI mappings: one name for devices of several hosts, which VMs pass through by that
// name.
func mappingType() *resourceType {
	return &resourceType{
		token: typeMapping, attributes: mapping(), autoName: true, framework: true,
		checkMore: checkMapping,
		create:    createMapping, read: readMapping, update: updateMapping, remove: removeMapping,
	}
}

// mapping is the table of Hardware/mapping/pci:Pci. A new name is no replacement in the published provider, but a
// change of a mapping that is not there.
func mapping() attributes {
	const path = `not a valid Linux device path for hardware mapping of type "pci"`

	id := matching(`^[0-9A-Fa-f]{4}:[0-9A-Fa-f]{4}$`, `value must be a valid hardware mapping device ID, e.g. "8086:5916"`)

	return attributes{
		"comment":         {effect: inPlace, validate: comment},
		"mediatedDevices": {kind: boolean, fallback: false, effect: inPlace},
		"name":            {effect: inPlace},
		"maps": {kind: block, many: true, set: true, required: true, effect: inPlace, fields: attributes{
			"id":          {required: true, validate: id},
			"iommuGroup":  {kind: integer, exact: true},
			"node":        {required: true},
			"path":        {required: true, validate: matching(`^[a-f0-9]{4,}:[a-f0-9]{2}:[a-f0-9]{2}(\.[a-f0-9])?$`, path)},
			"subsystemId": {validate: id},
		}},
	}
}

// mappingKeys are the parts of an entry by property, in the order in which the published provider writes them.
var mappingKeys = []struct{ property, pve string }{
	{"id", "id"},
	{"node", "node"},
	{"path", "path"},
	{"iommuGroup", "iommugroup"},
	{"subsystemId", "subsystem-id"},
}

func checkMapping(c *checker, in object) {
	if entries, stated := in["maps"].([]any); stated && len(entries) == 0 {
		c.fail("maps", "Attribute map set must contain at least 1 elements, got: 0")
	}
}

// encodeMapping is a mapping in Proxmox's own form: a string for each entry.
func encodeMapping(values object) object {
	var entries []any

	for _, entry := range children(values, "maps") {
		var parts []string

		for _, key := range mappingKeys {
			switch v := entry[key.property].(type) {
			case string:
				parts = append(parts, key.pve+"="+v)
			case float64:
				parts = append(parts, key.pve+"="+strconv.Itoa(int(v)))
			case unknown:
				parts = append(parts, key.pve+"=?")
			}
		}

		entries = append(entries, strings.Join(parts, ","))
	}

	return object{"map": entries}
}

// mappingRequest are the parameters that creation and change have in common.
func mappingRequest(plan object) repeated {
	out := repeated{"map": words(encodeMapping(plan), "map")}
	if text := str(plan, "comment"); text != "" {
		out["description"] = []string{text}
	}

	if flag(plan, "mediatedDevices") {
		out["mdev"] = []string{"1"}
	}

	return out
}

func mappingAt(name string) string { return mappingPath + "/" + url.PathEscape(name) }

// createMapping leaves nothing in the state when it fails, even if the mapping is there by then: as published.
func createMapping(ctx context.Context, a *api, plan object) (string, object, error) {
	name := str(plan, "name")
	request := mappingRequest(plan)
	request["id"] = []string{name}

	if err := a.call(ctx, http.MethodPost, mappingPath, request, nil); err != nil {
		//nolint:revive,staticcheck // published words
		return "", nil, fmt.Errorf(
			"Could not create PCI hardware mapping %q.: creating hardware mapping %q: %w", name, name, err,
		)
	}

	state, err := mappingBack(ctx, a, name)
	if err != nil {
		return "", nil, err
	}

	return name, state, nil
}

// errMappingGone is what a mapping that cannot be read is after it was written.
//
//nolint:staticcheck // published words
var errMappingGone = errors.New("PCI hardware mapping resource not found after update: " +
	"Failed to find the resource when trying to read back the updated PCI hardware mapping's data.")

func mappingBack(ctx context.Context, a *api, name string) (object, error) {
	state, err := findMapping(ctx, a, name)
	if err == nil && state == nil {
		err = errMappingGone
	}

	return state, err
}

// findMapping takes every failure but one that Proxmox does not even have for a mapping that is gone, as published: one
// deleted manually leaves the state on a refresh.
func findMapping(ctx context.Context, a *api, name string) (object, error) {
	var found struct {
		Map         []string `json:"map"`
		Description *string  `json:"description"`
		MDev        int      `json:"mdev"`
	}

	err := a.call(ctx, http.MethodGet, mappingAt(name), nil, &found)

	switch {
	case err != nil && strings.Contains(err.Error(), "no such resource"):
		//nolint:revive,staticcheck // published words
		return nil, fmt.Errorf("Could not read PCI hardware mapping: reading hardware mapping %q: %w", name, err)
	case err != nil:
		return nil, nil //nolint:nilerr // see above
	}

	out := object{"name": name, "mediatedDevices": found.MDev == 1}
	if found.Description != nil {
		out["comment"] = *found.Description
	}

	entries := []any{}
	for _, text := range found.Map {
		entries = append(entries, decodeMappingEntry(text))
	}

	out["maps"] = entries

	return out, nil
}

func decodeMappingEntry(text string) object {
	options, entry := parseOptions(text, "id"), object{}

	for _, key := range mappingKeys {
		v, stated := options[key.pve]
		if !stated {
			continue
		}

		entry[key.property] = v
		if n, err := strconv.ParseFloat(v, 64); err == nil && key.property == "iommuGroup" {
			entry[key.property] = n
		}
	}

	return entry
}

func readMapping(ctx context.Context, a *api, id string, before object) (object, error) {
	found, err := findMapping(ctx, a, id)
	if found == nil || err != nil {
		return nil, err
	}

	state := maps.Clone(before)
	maps.Copy(state, found)

	if found["comment"] == nil {
		delete(state, "comment")
	}

	mapping().keepSets(state, before)

	return state, nil
}

// updateMapping writes to the name in the program, which a new name is not there under yet.
func updateMapping(ctx context.Context, a *api, _ string, plan, state object) (object, error) {
	name := str(plan, "name")
	request := mappingRequest(plan)

	var del []string
	if str(plan, "comment") == "" && str(state, "comment") != "" {
		del = append(del, "description")
	}

	if !flag(plan, "mediatedDevices") {
		del = append(del, "mdev")
	}

	if len(del) > 0 {
		request["delete"] = []string{strings.Join(del, ",")}
	}

	if err := a.call(ctx, http.MethodPut, mappingAt(name), request, nil); err != nil {
		//nolint:revive,staticcheck // published words
		return nil, fmt.Errorf("Could not update PCI hardware mapping %q.: udating hardware mapping %q: %w", name, name, err)
	}

	return mappingBack(ctx, a, name)
}

// removeMapping is content with a mapping that is not there, because Proxmox is.
func removeMapping(ctx context.Context, a *api, id string, _ object) error {
	if err := a.call(ctx, http.MethodDelete, mappingAt(id), nil, nil); err != nil {
		//nolint:revive,staticcheck // published words
		return fmt.Errorf("Could not delete PCI hardware mapping %q.: deleting hardware mapping %q: %w", id, id, err)
	}

	return nil
}
