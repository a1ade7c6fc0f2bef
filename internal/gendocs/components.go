package main

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"

	"talos-proxmox/internal/plugin"
	"talos-proxmox/internal/vmdiff"
)

// componentsPath is the page about components, and componentsFolder what it follows from.
const (
	componentsPath   = "docs/components.md"
	componentsFolder = "components"
)

// documented are the components in the page's order, and types are what their arguments are made of.
var (
	documented = []string{
		"ProxmoxHostPrep", "TalosImage", "SystemImage", "GoldenTemplate", "PCIMapping", "CloudMachine", "TalosNode", "GPUWorker", "TalosCluster",
	}
	types = []string{
		"ClusterNode", "TalosUpgrades", "Backup", "CNI", "AddressRange", "GitOps", "PullSecret", "Verify", "Proxmox", "Identity", "StorageClass", "Machine", "Hardware", "Network", "Disk", "NIC", "PCIDevice", "GPU", "Talos", "System", "WindowsMedia", "TalosClient", "ImageStore",
		"HostShell",
		"HostGPU", "MappedDevice",
	}
)

// field is a field of a struct that components take or give.
type field struct {
	name, kind, means, otherwise string // otherwise is the default
	optional                     bool
}

// structure is a struct of the components' sources.
type structure struct {
	about  string
	fields []field
}

// componentPage returns the page with a table for each component and each type.
func componentPage(root string) ([]byte, error) {
	page, err := os.ReadFile(filepath.Join(root, componentsPath))
	if err != nil {
		return nil, fmt.Errorf("unable to read the page on components: %w; run this in the project's root", err)
	}

	before, inside, after, err := placeOfTables(page, componentsPath, "<!-- components, written by make schema -->\n")
	if err != nil {
		return nil, err
	}

	structures, err := readStructures(root)
	if err != nil {
		return nil, err
	}

	var tables strings.Builder

	written := writtenCells(inside)
	for _, f := range vmdiff.Fields {
		written["Machine."+f.Argument] = f.Effect.String()
	}

	for _, name := range documented {
		fmt.Fprintf(&tables, "\n## %s\n\n%s\n\n", name, structures[name].about)

		if err := inputTable(&tables, name, structures[name+"Args"], written); err != nil {
			return nil, err
		}

		tables.WriteString("\n| output | type | what it is |\n|---|---|---|\n")

		for _, f := range structures[name].fields {
			fmt.Fprintf(&tables, "| `%s` | %s | %s |\n", f.name, f.kind, cell(f.means))
		}
	}

	for _, name := range types {
		fmt.Fprintf(&tables, "\n## %s\n\n%s\n\n", name, structures[name].about)

		if err := inputTable(&tables, name, structures[name], written); err != nil {
			return nil, err
		}
	}

	return []byte(before + tables.String() + "\n" + after), nil
}

// inputTable writes the table of a section. What a change of an input does is written in the page itself.
func inputTable(tables *strings.Builder, title string, of structure, written map[string]string) error {
	if len(of.fields) == 0 {
		return fmt.Errorf("%s has no type %s with fields: correct the lists of documented types", componentsFolder, title)
	}

	tables.WriteString("| input | type | default | what it is | what a change does |\n|---|---|---|---|---|\n")

	for _, f := range of.fields {
		change := written[title+"."+f.name]
		if change == "" {
			return fmt.Errorf("nothing says what a change of %s of %s does: write the row `%[1]s` below %[2]q in %s",
				f.name, title, componentsPath)
		}

		otherwise := f.otherwise
		switch {
		case !f.optional:
			otherwise = "**required**"
		case otherwise == "":
			otherwise = "none"
		}

		fmt.Fprintf(tables, "| `%s` | %s | %s | %s | %s |\n", f.name, f.kind, otherwise, cell(f.means), change)
	}

	return nil
}

// readStructures reads the structs that components take and give, with what their sources say of them.
func readStructures(root string) (map[string]structure, error) {
	said, found := map[string]string{}, map[string]structure{}

	for _, t := range plugin.Types() {
		key := t.PkgPath() + "." + t.Name()
		if _, read := said[key]; !read {
			if err := readComments(root, strings.TrimPrefix(t.PkgPath(), module+"/"), said); err != nil {
				return nil, err
			}
		}

		read := structure{about: said[key]}

		for f := range t.Fields() {
			if name, rest, _ := strings.Cut(f.Tag.Get("pulumi"), ","); name != "" {
				read.fields = append(read.fields, fieldOf(f, name, rest == "optional", said[key+"."+f.Name]))
			}
		}

		found[t.Name()] = read
	}

	return found, nil
}

var (
	defaultForm = regexp.MustCompile(`\s*Default: (.*)\.$`)
	defaultTag  = regexp.MustCompile(`(?:^|,)default=([^,]+)`)
)

func fieldOf(f reflect.StructField, name string, optional bool, means string) field {
	read := field{name: name, kind: kindOf(f.Type), optional: optional}
	if found := defaultForm.FindStringSubmatch(means); found != nil {
		read.otherwise, means = found[1], strings.TrimSuffix(means, found[0])
	} else if found := defaultTag.FindStringSubmatch(f.Tag.Get("jsonschema")); found != nil && optional {
		read.otherwise = found[1] // of stack files too
	}

	read.means = means

	return read
}

// cell is a text in a table.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

// kinds are types as the page says them.
var kinds = map[string]string{
	"String": "string", "Int": "integer", "Bool": "boolean", "StringArray": "list of string", "StringMap": "map of string",
	"IntMap": "map of integer", "StringPtr": "string",
	"int": "integer", "bool": "boolean", "float64": "number", "string": "string",
}

// kindOf is a type as the page says it; what may come from another resource is an input.
func kindOf(t reflect.Type) string {
	switch t.Kind() { //nolint:exhaustive // everything else has its name
	case reflect.Pointer:
		return kindOf(t.Elem())
	case reflect.Slice:
		return "list of " + kindOf(t.Elem())
	case reflect.Map:
		return "map of " + kindOf(t.Elem())
	}

	if base, input := strings.CutSuffix(t.Name(), "Input"); input {
		return kinds[base] + ", input"
	}

	if kind, known := kinds[strings.TrimSuffix(t.Name(), "Output")]; known {
		return kind
	}

	name := strings.TrimSuffix(t.Name(), "Args") // of a component's arguments, its own section

	return fmt.Sprintf("[%s](#%s)", name, strings.ToLower(name))
}
