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

// componentsPath is the page about components, componentsFolder their sources.
const (
	componentsPath   = "docs/components.md"
	componentsFolder = "components"
)

// documentedComponents and documentedTypes, the types of their arguments, are in the page's order.
var (
	documentedComponents = []string{
		"ProxmoxHostPrep", "TalosImage", "SystemImage", "GoldenTemplate", "PCIMapping", "USBMapping", "CloudMachine", "TalosNode", "GPUWorker", "TalosCluster",
	}
	documentedTypes = []string{
		"ClusterNode", "Encryption", "TalosUpgrades", "Maintenance", "MaintenanceWindow", "Backup", "CNI", "AddressRange", "BGP", "BGPPeer", "Firewall", "ProxmoxFirewall", "APIServer", "OIDC", "AuditPolicy", "AuditRule", "AuditResources", "PodSecurity", "Registries", "RegistryMirror", "RegistryAuth", "RegistryTLS", "GitOps", "PullSecret", "Verify", "Tailscale", "Proxmox", "Identity", "StorageClass", "AutoscaledPool", "Machine", "Hardware", "Network", "IPv6Network", "Route", "StaticHost", "HA", "Replication", "Disk", "NIC", "Bond", "VLAN", "PCIDevice", "USBDevice", "GPU", "Talos", "System", "WindowsMedia", "TalosClient", "ImageStore",
		"HostShell",
		"HostGPU", "HostDevice", "MappedDevice", "MappedUSBDevice",
	}
)

// field is an input or output of a component.
type field struct {
	name, kind, description, defaultValue string
	optional                              bool
}

// structure is a struct with inputs or outputs of components.
type structure struct {
	description string
	fields      []field
}

// componentPage returns the page with a table for each component and each type.
func componentPage(root string) ([]byte, error) {
	page, err := os.ReadFile(filepath.Join(root, componentsPath))
	if err != nil {
		return nil, fmt.Errorf("unable to read the page on components: %w; run this in the project's root", err)
	}

	before, inside, after, err := splitAtTables(page, componentsPath, "<!-- components, written by make schema -->\n")
	if err != nil {
		return nil, err
	}

	structures, err := readStructures(root)
	if err != nil {
		return nil, err
	}

	var tables strings.Builder

	written := readCells(inside)
	for _, f := range vmdiff.Fields {
		written["Machine."+f.Argument] = f.Effect.String()
	}

	for _, name := range documentedComponents {
		fmt.Fprintf(&tables, "\n## %s\n\n%s\n\n", name, structures[name].description)

		if err := inputTable(&tables, name, structures[name+"Args"], written); err != nil {
			return nil, err
		}

		tables.WriteString("\n| output | type | what it is |\n|---|---|---|\n")

		for _, f := range structures[name].fields {
			fmt.Fprintf(&tables, "| `%s` | %s | %s |\n", f.name, f.kind, cell(f.description))
		}
	}

	for _, name := range documentedTypes {
		fmt.Fprintf(&tables, "\n## %s\n\n%s\n\n", name, structures[name].description)

		if err := inputTable(&tables, name, structures[name], written); err != nil {
			return nil, err
		}
	}

	return []byte(before + tables.String() + "\n" + after), nil
}

// inputTable writes the table of a section. The page itself contains what a change of an input does.
func inputTable(tables *strings.Builder, title string, of structure, written map[string]string) error {
	if len(of.fields) == 0 {
		return fmt.Errorf("%s has no type %s with fields: correct the lists of documented types", componentsFolder, title)
	}

	tables.WriteString("| input | type | default | what it is | what a change does |\n|---|---|---|---|---|\n")

	for _, f := range of.fields {
		change := written[title+"."+f.name]
		if change == "" {
			return fmt.Errorf("no row says what a change of %s of %s does: write the row `%[1]s` below %[2]q in %s",
				f.name, title, componentsPath)
		}

		defaultValue := f.defaultValue
		switch {
		case !f.optional:
			defaultValue = "**required**"
		case defaultValue == "":
			defaultValue = "none"
		}

		fmt.Fprintf(tables, "| `%s` | %s | %s | %s | %s |\n", f.name, f.kind, defaultValue, cell(f.description), change)
	}

	return nil
}

// readStructures reads the structs with inputs and outputs of components, described by their doc comments.
func readStructures(root string) (map[string]structure, error) {
	comments, found := map[string]string{}, map[string]structure{}

	for _, t := range plugin.Types() {
		key := t.PkgPath() + "." + t.Name()
		if _, ok := comments[key]; !ok {
			if err := readComments(root, strings.TrimPrefix(t.PkgPath(), module+"/"), comments); err != nil {
				return nil, err
			}
		}

		s := structure{description: comments[key]}

		for f := range t.Fields() {
			if name, rest, _ := strings.Cut(f.Tag.Get("pulumi"), ","); name != "" {
				s.fields = append(s.fields, fieldOf(f, name, rest == "optional", comments[key+"."+f.Name]))
			}
		}

		found[t.Name()] = s
	}

	return found, nil
}

var (
	defaultForm = regexp.MustCompile(`\s*Default: (.*)\.$`)
	defaultTag  = regexp.MustCompile(`(?:^|,)default=([^,]+)`)
)

func fieldOf(f reflect.StructField, name string, optional bool, description string) field {
	result := field{name: name, kind: kindOf(f.Type), optional: optional}
	if match := defaultForm.FindStringSubmatch(description); match != nil {
		result.defaultValue, description = match[1], strings.TrimSuffix(description, match[0])
	} else if match := defaultTag.FindStringSubmatch(f.Tag.Get("jsonschema")); match != nil && optional {
		result.defaultValue = match[1] // shared with stack files
	}

	result.description = description

	return result
}

// cell escapes a text for a table.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

// kinds are the page's names of types.
var kinds = map[string]string{
	"String": "string", "Int": "integer", "Bool": "boolean", "StringArray": "list of string", "StringMap": "map of string",
	"IntMap": "map of integer", "StringPtr": "string",
	"int": "integer", "bool": "boolean", "float64": "number", "string": "string", "Addr": "string", "Prefix": "string",
}

// kindOf returns the page's name of a type. Values that may come from another resource are marked as input.
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

	name := strings.TrimSuffix(t.Name(), "Args") // a component's arguments are in the component's section

	return fmt.Sprintf("[%s](#%s)", name, strings.ToLower(name))
}
