package repositorytest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// reference matches a reference to a declaration in a comment, as go doc links them: Name, Type.Method or package.Name
// in brackets. Words without a capital letter may be anything.
var reference = regexp.MustCompile(`(?:^|[\s(])\[\*?((?:\w+\.){0,2}\w*[A-Z]\w*)\](?:[^(\w]|$)`)

// declarations are the names that a package declares, and members of its types: Name, Type.Method, Type.Field.
type declarations map[string]bool

func (d declarations) add(file *ast.File) {
	for _, declared := range file.Decls {
		switch declared := declared.(type) {
		case *ast.FuncDecl:
			name := declared.Name.Name
			if declared.Recv != nil {
				name = receiver(declared.Recv.List[0].Type) + "." + name
			}

			d[name] = true
		case *ast.GenDecl:
			for _, spec := range declared.Specs {
				d.addSpec(spec)
			}
		}
	}
}

func (d declarations) addSpec(spec ast.Spec) {
	switch spec := spec.(type) {
	case *ast.ValueSpec:
		for _, name := range spec.Names {
			d[name.Name] = true
		}
	case *ast.TypeSpec:
		d[spec.Name.Name] = true

		var members *ast.FieldList

		switch of := spec.Type.(type) {
		case *ast.StructType:
			members = of.Fields
		case *ast.InterfaceType:
			members = of.Methods
		default:
			return
		}

		for _, member := range members.List {
			for _, name := range member.Names {
				d[spec.Name.Name+"."+name.Name] = true
			}
		}
	}
}

// receiver returns the name of a method's type.
func receiver(of ast.Expr) string {
	switch of := of.(type) {
	case *ast.StarExpr:
		return receiver(of.X)
	case *ast.IndexExpr:
		return receiver(of.X)
	case *ast.Ident:
		return of.Name
	default:
		return ""
	}
}

// unresolved returns the references in the comments of a file to what neither its package nor another one of the
// project declares, with their lines. Packages are by name; those of libraries that the file imports are not looked
// into.
func unresolved(set *token.FileSet, file *ast.File, own declarations, packages map[string]declarations) (found []string) {
	libraries := map[string]bool{}

	for _, spec := range file.Imports {
		name := path.Base(strings.Trim(spec.Path.Value, `"`))
		if spec.Name != nil {
			name = spec.Name.Name
		}

		libraries[name] = packages[name] == nil
	}

	for _, group := range file.Comments {
		for _, comment := range group.List {
			for _, match := range reference.FindAllStringSubmatch(comment.Text, -1) {
				first, rest, _ := strings.Cut(match[1], ".")
				if !own[match[1]] && !packages[first][rest] && !libraries[first] {
					found = append(found, "line "+strconv.Itoa(set.Position(comment.Pos()).Line)+": ["+match[1]+"]")
				}
			}
		}
	}

	return found
}

// TestReferencesInComments: what a comment refers to exists, in its package or in another one of the project.
func TestReferencesInComments(t *testing.T) {
	t.Parallel()

	set := token.NewFileSet()
	parsed, inFolder, packages := map[string]*ast.File{}, map[string]declarations{}, map[string]declarations{}

	for _, name := range files(t, ".go") {
		file, err := parser.ParseFile(set, filepath.Join(root, name), nil, parser.ParseComments|parser.SkipObjectResolution)
		require.NoError(t, err)

		parsed[name] = file

		for of, key := range map[*map[string]declarations]string{&inFolder: path.Dir(name), &packages: file.Name.Name} {
			if (*of)[key] == nil {
				(*of)[key] = declarations{}
			}

			(*of)[key].add(file)
		}
	}

	for name, file := range parsed {
		assert.Empty(t, unresolved(set, file, inFolder[path.Dir(name)], packages), name)
	}
}

func TestUnresolvedReferencesAreFound(t *testing.T) {
	t.Parallel()

	packages := map[string]declarations{"other": {"There": true, "There.Field": true}}

	for text, want := range map[string][]string{
		"[Here], [Here.Method] and [Here.Field]":        nil,
		"[other.There], [*other.There]":                 nil,
		"[other.There.Field]":                           nil,
		"[library.Anything]":                            nil,
		"nodes[Here], [flags], a [Link](target)":        nil,
		"a [Gone] and (see [Here.Gone])":                {"line 1: [Gone]", "line 1: [Here.Gone]"},
		"[other.Gone], [notImported.There]":             {"line 1: [notImported.There]", "line 1: [other.Gone]"},
		"[camelCase] is a name, [lower] may be no name": {"line 1: [camelCase]"},
	} {
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, "a.go", `package a // `+text+`
import "example.com/library"
type Here struct { Field int }
func (h *Here) Method() {}`, parser.ParseComments|parser.SkipObjectResolution)
		require.NoError(t, err)

		own := declarations{}
		own.add(file)

		found := unresolved(set, file, own, packages)
		assert.ElementsMatch(t, want, found, text)
	}
}
