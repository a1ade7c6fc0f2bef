// Command gendocs generates documents. From the configuration types of internal/spec: the JSON schema for editors,
// docs/schema/stack.schema.json, the tables of keys in docs/configuration.md, and the effects of changes in
// docs/changing.md. From the types of components: docs/components.md and the schema of the package that serves them.
// docs/prod.svg is the picture of `talos-proxmox report prod`. It runs in the project's root.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"talos-proxmox/internal/report"
	"talos-proxmox/stacks"
)

const picturePath = "docs/prod.svg"

func main() {
	files, err := generate(".")
	if err == nil {
		err = write(files)
	}

	if err != nil {
		fmt.Fprintf(os.Stderr, "gendocs: %v\n", err)
		os.Exit(1)
	}
}

// file is a generated file.
type file struct {
	path    string
	content []byte
}

// generate returns the generated files, with paths below the project's root.
func generate(root string) ([]file, error) {
	schema, err := stackSchema(root)
	if err != nil {
		return nil, err
	}

	encoded, err := encode(schema)
	if err != nil {
		return nil, err
	}

	reference, err := os.ReadFile(filepath.Join(root, referencePath))
	if err != nil {
		return nil, fmt.Errorf("unable to read the configuration reference: %w; run this in the project's root", err)
	}

	reference, err = fillTables(reference, schema)
	if err != nil {
		return nil, err
	}

	changing, err := os.ReadFile(filepath.Join(root, changingPath))
	if err != nil {
		return nil, fmt.Errorf("unable to read the page on changes: %w; run this in the project's root", err)
	}

	changing, err = fillChanges(changing, schema)
	if err != nil {
		return nil, err
	}

	components, err := componentPage(root)
	if err != nil {
		return nil, err
	}

	served, err := servedSchema(root)
	if err != nil {
		return nil, err
	}

	drawn, err := picture(root)
	if err != nil {
		return nil, err
	}

	sources, err := aliasComments(root)
	if err != nil {
		return nil, err
	}

	return append([]file{
		{schemaPath, encoded},
		{referencePath, reference},
		{changingPath, changing},
		{componentsPath, components},
		{servedPath, served},
		{picturePath, drawn},
	}, sources...), nil
}

// picture draws the example stack, for the README.
func picture(root string) ([]byte, error) {
	content, err := os.ReadFile(filepath.Join(root, "Pulumi.prod.yaml"))
	if err != nil {
		return nil, fmt.Errorf("unable to read the example stack: %w; run this in the project's root", err)
	}

	plan, err := stacks.PlanFile("prod", content)
	if err != nil {
		return nil, err
	}

	return report.SVG(plan)
}

func write(files []file) error {
	for _, f := range files {
		if err := os.MkdirAll(filepath.Dir(f.path), 0o750); err != nil {
			return fmt.Errorf("unable to create the folder of %s: %w; check its permissions", f.path, err)
		}
		// The files are documentation in the repository, readable for everyone.
		if err := os.WriteFile(f.path, f.content, 0o644); err != nil { //nolint:gosec // see above
			return fmt.Errorf("unable to write %s: %w; check its permissions", f.path, err)
		}
	}

	return nil
}
