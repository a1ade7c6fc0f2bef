package components

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestExportedSignaturesAreUsableFromOtherModules checks that no exported signature has a type that another module or
// language cannot create: types of internal packages, callbacks, and resources as dependencies.
func TestExportedSignaturesAreUsableFromOtherModules(t *testing.T) {
	t.Parallel()

	paths, err := filepath.Glob("*.go")
	require.NoError(t, err)

	signatures := 0

	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}

		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		require.NoError(t, err)

		for name, types := range exportedSignatures(file) {
			signatures++

			for _, part := range types {
				assert.Empty(t, unusableTypes(file, part, !strings.HasPrefix(name, "func ")), "%s: %s", path, name)
			}
		}
	}

	assert.Greater(t, signatures, 40)
}

// exportedSignatures returns the types of a file's exported fields and functions, by name.
func exportedSignatures(file *ast.File) map[string][]ast.Expr {
	found := map[string][]ast.Expr{}

	for _, declaration := range file.Decls {
		switch d := declaration.(type) {
		case *ast.FuncDecl:
			if !d.Name.IsExported() {
				continue
			}

			for _, list := range []*ast.FieldList{d.Recv, d.Type.Params, d.Type.Results} {
				if list == nil {
					continue
				}

				for _, f := range list.List {
					found["func "+d.Name.Name] = append(found["func "+d.Name.Name], f.Type)
				}
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				named, ok := spec.(*ast.TypeSpec)
				if !ok || !named.Name.IsExported() {
					continue
				}

				if named.Assign.IsValid() {
					continue // an alias is usable by its own name
				}

				fields, ok := named.Type.(*ast.StructType)
				if !ok {
					found[named.Name.Name] = append(found[named.Name.Name], named.Type)

					continue
				}

				for _, f := range fields.Fields.List {
					for _, name := range f.Names {
						if name.IsExported() {
							found[named.Name.Name+"."+name.Name] = append(found[named.Name.Name+"."+name.Name], f.Type)
						}
					}
				}
			}
		}
	}

	return found
}

// unusableTypes returns the parts of a type that cannot be created elsewhere. Functions may take resource options.
func unusableTypes(file *ast.File, expression ast.Expr, field bool) (found []string) {
	ast.Inspect(expression, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncType:
			found = append(found, "a callback")
		case *ast.SelectorExpr:
			from, _ := n.X.(*ast.Ident)
			if from == nil {
				break
			}

			for _, imported := range file.Imports {
				path := strings.Trim(imported.Path.Value, `"`)
				if strings.HasSuffix(path, "/"+from.Name) && strings.Contains(path, "/internal/") {
					found = append(found, path+"."+n.Sel.Name)
				}
			}

			if field && (n.Sel.Name == "Resource" || n.Sel.Name == "ResourceArrayInput") {
				found = append(found, "resources to wait for")
			}
		}

		return true
	})

	return found
}
