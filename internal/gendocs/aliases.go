package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"talos-proxmox/internal/plugin"
)

// fieldList begins the generated part of an alias' comment.
const fieldList = "Its fields, from their own comments (make schema):"

// lineWidth is how long lines of comments are, at most.
const lineWidth = 120

// aliasComments returns the files of components with the fields of their aliases in comments: go doc shows the fields
// of a type, but of an alias only its name.
func aliasComments(root string) (files []file, err error) {
	paths, err := filepath.Glob(filepath.Join(root, componentsFolder, "*.go"))
	if err != nil {
		return nil, err
	}

	comments := map[string]string{}

	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}

		source, err := os.ReadFile(path) //nolint:gosec // the project's
		if err != nil {
			return nil, fmt.Errorf("unable to read a component: %w; run this in the project's root", err)
		}

		described, err := describeAliases(root, source, comments)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}

		if described != nil {
			files = append(files, file{filepath.Join(componentsFolder, filepath.Base(path)), described})
		}
	}

	return files, nil
}

// describeAliases returns a source with the fields of its exported aliases; nil if it has none.
func describeAliases(root string, source []byte, comments map[string]string) ([]byte, error) {
	positions := token.NewFileSet()

	parsed, err := parser.ParseFile(positions, "", source, parser.ParseComments)
	if err != nil {
		return nil, err
	}

	type edit struct {
		from, to int
		text     string
	}

	var edits []edit

	for _, declared := range parsed.Decls {
		group, ok := declared.(*ast.GenDecl)
		if !ok || group.Tok != token.TYPE {
			continue
		}

		for _, one := range group.Specs {
			alias := one.(*ast.TypeSpec) //nolint:forcetypeassert // by its token

			doc, indent := alias.Doc, "\t"
			if !group.Lparen.IsValid() {
				doc, indent = group.Doc, ""
			}

			of, ok := alias.Type.(*ast.SelectorExpr)
			if !ok || !alias.Assign.IsValid() || doc == nil {
				continue
			}

			lines, err := fieldLines(root, of, indent, comments)
			if err != nil {
				return nil, err
			}

			if len(lines) == 0 {
				continue
			}

			written := strings.Split(strings.TrimSpace(doc.Text()), "\n")
			if at := slices.Index(written, fieldList); at >= 0 {
				written = written[:at-1]
			}

			for i, line := range written {
				written[i] = strings.TrimRight("// "+line, " ")
			}

			all := slices.Concat(written, []string{"//", "// " + fieldList}, lines)
			edits = append(edits, edit{
				positions.Position(doc.Pos()).Offset, positions.Position(doc.End()).Offset, strings.Join(all, "\n"+indent),
			})
		}
	}

	if len(edits) == 0 {
		return nil, nil
	}

	var described strings.Builder

	end := 0
	for _, e := range edits {
		described.Write(source[end:e.from])
		described.WriteString(e.text)

		end = e.to
	}

	described.Write(source[end:])

	return []byte(described.String()), nil
}

// fieldLines returns the lines of a comment about the fields of a type of another package; none if no component has it.
func fieldLines(
	root string, of *ast.SelectorExpr, indent string, comments map[string]string,
) (lines []string, err error) {
	types := plugin.Types()

	i := slices.IndexFunc(types, func(t reflect.Type) bool {
		return t.Name() == of.Sel.Name && strings.HasSuffix(t.PkgPath(), fmt.Sprint("/", of.X))
	})
	if i < 0 {
		return nil, nil
	}

	key := types[i].PkgPath() + "." + types[i].Name()
	if _, ok := comments[key]; !ok {
		if err := readComments(root, strings.TrimPrefix(types[i].PkgPath(), module+"/"), comments); err != nil {
			return nil, err
		}
	}

	width := lineWidth - 4*len(indent)

	for f := range types[i].Fields() {
		if !f.IsExported() || f.Tag.Get("pulumi") == "" {
			continue
		}

		kind := strings.NewReplacer("spec.", "", "systems.", "", "request.", "").Replace(f.Type.String())
		lines = append(lines, wrapItem(fmt.Sprintf("%s %s: %s", f.Name, kind, comments[key+"."+f.Name]), width)...)
	}

	return lines, nil
}

// wrapItem returns the lines of a comment with an item of a list.
func wrapItem(text string, width int) (lines []string) {
	line := "//   -"
	for _, word := range strings.Fields(text) {
		if utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			lines, line = append(lines, line), "//    "
		}

		line += " " + word
	}

	return append(lines, line)
}
