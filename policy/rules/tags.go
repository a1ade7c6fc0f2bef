package rules

import (
	"maps"
	"slices"

	"github.com/pulumi/pulumi/sdk/v3/go/property"

	"talos-proxmox/internal/tokens"
)

func tagPolicies() []policy {
	list := map[string]any{
		"type": "array", "items": map[string]any{"type": "string", "pattern": "^[a-z0-9_][a-z0-9_.+-]*$"},
	}

	return []policy{{
		Name:        "required-tags",
		Description: "Machines have the required tags.",
		Reason:      "People and tools find the machines of a cluster by their tags. Missing tags are added.",
		Options: []option{
			{Key: "nodes", Doc: "Tags of Talos nodes.", Schema: withKey(list, "default", []any{tagTalos})},
			{
				Key:    "machines",
				Doc:    "Tags of every machine, nodes and templates included.",
				Schema: withKey(list, "default", []any{}),
			},
		},
		Remediate: addTags,
	}}
}

func withKey(schema map[string]any, key string, value any) map[string]any {
	copied := maps.Clone(schema)
	copied[key] = value

	return copied
}

// addTags returns the properties with the missing tags; nil = none is missing, or the tags are unknown.
func addTags(o options, r resource) *property.Map {
	if r.Type != tokens.VirtualMachine {
		return nil
	}

	m := readMachine(r)
	if !m.Tags.Known {
		return nil
	}

	required := o.strings("machines")
	if m.isTalosNode() && !equals(m.Template, true) {
		required = append(required, o.strings("nodes")...)
	}

	tags := slices.Clone(m.Tags.Value)

	for _, tag := range required {
		if !slices.Contains(tags, tag) {
			tags = append(tags, tag)
		}
	}

	if len(tags) == len(m.Tags.Value) {
		return nil
	}

	slices.Sort(tags) // as Proxmox keeps them

	values := make([]property.Value, len(tags))
	for i, tag := range tags {
		values[i] = property.New(tag)
	}

	changed := r.Properties.property.AsMap().Set("tags", property.New(values).WithSecret(r.at("tags").property.Secret()))

	return &changed
}
