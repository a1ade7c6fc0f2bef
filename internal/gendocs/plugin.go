package main

import (
	"errors"
	"fmt"
	"slices"

	"talos-proxmox/internal/plugin"
)

// servedPath is the schema of the package that serves the components.
const servedPath = "cmd/pulumi-resource-talos-proxmox/schema.json"

// servedSchema returns the package's schema: its types are those of the components, and so are its descriptions.
func servedSchema(root string) ([]byte, error) {
	structures, err := readStructures(root)
	if err != nil {
		return nil, err
	}

	var silent error

	describe := func(name, of string) string {
		found := structures[name]
		if of == "" {
			return found.about
		}

		i := slices.IndexFunc(found.fields, func(f field) bool { return f.name == of })
		if i < 0 || found.fields[i].means == "" {
			silent = fmt.Errorf("nothing says what %s of %s is: give its field in %s a comment", of, name, componentsFolder)

			return ""
		}

		if f := found.fields[i]; f.otherwise != "" {
			return f.means + " Default: " + f.otherwise + "."
		}

		return found.fields[i].means
	}

	schema, err := plugin.Schema(describe)
	if err = errors.Join(err, silent); err != nil {
		return nil, fmt.Errorf("unable to write the schema of the components: %w", err)
	}

	return encode(schema)
}
