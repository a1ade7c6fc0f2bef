package main

import (
	"errors"
	"fmt"
	"slices"

	"talos-proxmox/internal/plugin"
)

// servedPath is the schema of the package that serves the components.
const servedPath = "cmd/pulumi-resource-talos-proxmox/schema.json"

// servedSchema returns the package's schema, with the types and descriptions of the components.
func servedSchema(root string) ([]byte, error) {
	structures, err := readStructures(root)
	if err != nil {
		return nil, err
	}

	var missing error

	describe := func(name, of string) string {
		s := structures[name]
		if of == "" {
			return s.description
		}

		i := slices.IndexFunc(s.fields, func(f field) bool { return f.name == of })
		if i < 0 || s.fields[i].description == "" {
			missing = fmt.Errorf("%s of %s has no description: give its field in %s a comment", of, name, componentsFolder)

			return ""
		}

		if f := s.fields[i]; f.defaultValue != "" {
			return f.description + " Default: " + f.defaultValue + "."
		}

		return s.fields[i].description
	}

	schema, err := plugin.Schema(describe)
	if err = errors.Join(err, missing); err != nil {
		return nil, fmt.Errorf("unable to write the schema of the components: %w", err)
	}

	return encode(schema)
}
