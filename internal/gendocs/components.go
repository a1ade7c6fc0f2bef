package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"

	"talos-proxmox/internal/vmdiff"
)

// componentsPath is the page about components, and componentsFolder what it follows from.
const (
	componentsPath   = "docs/components.md"
	componentsFolder = "components"
)

// The place of the tables in the page, between two comments.
const (
	componentsBegin = "<!-- components, written by make schema -->\n"
	componentsEnd   = "<!-- end -->\n"
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

	text := string(page)

	begin, end := strings.Index(text, componentsBegin), strings.Index(text, componentsEnd)
	if begin < 0 || end < begin {
		return nil, fmt.Errorf("%s has no place for its tables: %s%s", componentsPath, componentsBegin, componentsEnd)
	}

	structures, err := readStructures(root, componentsFolder)
	if err != nil {
		return nil, err
	}

	var tables strings.Builder

	written := writtenCells(text[begin:end])
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

	return []byte(text[:begin] + componentsBegin + tables.String() + "\n" + text[end:]), nil
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

// readStructures reads the exported structs of a package with what is said of them, those that are another package's
// included.
func readStructures(root, folder string) (map[string]structure, error) {
	paths, err := filepath.Glob(filepath.Join(root, folder, "*.go"))
	if err != nil {
		return nil, err
	}

	found := map[string]structure{}

	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}

		source, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			return nil, fmt.Errorf("unable to read the components: %w", err)
		}

		for _, declaration := range source.Decls {
			types, ok := declaration.(*ast.GenDecl)
			if !ok {
				continue
			}

			for _, spec := range types.Specs {
				named, ok := spec.(*ast.TypeSpec)
				if !ok || !named.Name.IsExported() {
					continue
				}

				switch of := named.Type.(type) {
				case *ast.StructType:
					found[named.Name.Name] = structure{about: plainText(types.Doc.Text()), fields: fieldsOf(of)}
				case *ast.SelectorExpr:
					others, err := readStructures(root, folderOf(source, of.X))
					if err != nil {
						return nil, err
					}

					found[named.Name.Name] = others[of.Sel.Name]
				}
			}
		}
	}

	return found, nil
}

// folderOf is the folder of a package of this module that a file imports.
func folderOf(source *ast.File, name ast.Expr) string {
	for _, imported := range source.Imports {
		folder, own := strings.CutPrefix(strings.Trim(imported.Path.Value, `"`), module+"/")
		if ident, is := name.(*ast.Ident); own && is && filepath.Base(folder) == ident.Name {
			return folder
		}
	}

	return ""
}

var (
	defaultForm = regexp.MustCompile(`\s*Default: (.*)\.$`)
	defaultTag  = regexp.MustCompile(`(?:^|,)default=([^,]+)`)
)

func fieldsOf(s *ast.StructType) (fields []field) {
	for _, f := range s.Fields.List {
		if f.Tag == nil {
			continue
		}

		tag := reflect.StructTag(strings.Trim(f.Tag.Value, "`"))

		name, rest, _ := strings.Cut(tag.Get("pulumi"), ",")
		if name == "" {
			continue
		}

		means := plainText(f.Doc.Text())

		read := field{name: name, kind: kindOf(f.Type), optional: rest == "optional"}
		if found := defaultForm.FindStringSubmatch(means); found != nil {
			read.otherwise, means = found[1], strings.TrimSuffix(means, found[0])
		} else if found := defaultTag.FindStringSubmatch(tag.Get("jsonschema")); found != nil && read.optional {
			read.otherwise = found[1] // of stack files too
		}

		read.means = means
		fields = append(fields, read)
	}

	return fields
}

// cell is a text in a table.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

var linkForm = regexp.MustCompile(`\[(\w+)\]`)

// plainText is a comment in one line.
func plainText(comment string) string {
	return linkForm.ReplaceAllString(strings.Join(strings.Fields(comment), " "), "$1")
}

var pulumiKinds = map[string]string{
	"String": "string", "Int": "integer", "Bool": "boolean", "StringArray": "list of string", "StringMap": "map of string",
	"IntMap": "map of integer", "StringPtr": "string",
}

// kindOf is a type as the page says it; what may come from another resource is an input.
func kindOf(expression ast.Expr) string {
	switch t := expression.(type) {
	case *ast.StarExpr:
		return kindOf(t.X)
	case *ast.ArrayType:
		return "list of " + kindOf(t.Elt)
	case *ast.MapType:
		return "map of " + kindOf(t.Value)
	case *ast.SelectorExpr:
		name := t.Sel.Name
		if base, input := strings.CutSuffix(name, "Input"); input {
			return pulumiKinds[base] + ", input"
		}

		return pulumiKinds[strings.TrimSuffix(name, "Output")]
	case *ast.Ident:
		if kind, known := map[string]string{
			"int": "integer", "bool": "boolean", "float64": "number", "string": "string",
		}[t.Name]; known {
			return kind
		}

		name := strings.TrimSuffix(t.Name, "Args") // of a component's arguments, its own section

		return fmt.Sprintf("[%s](#%s)", name, strings.ToLower(name))
	}

	return "any"
}
