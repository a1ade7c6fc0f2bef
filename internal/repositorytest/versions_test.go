package repositorytest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// tableFiles are the files that may name releases, or versions of modules that look like one.
var tableFiles = []string{"internal/talos/releases.go", "internal/cilium/charts.go", "talosops/gitopscheck/schemas.go"}

// exampleFiles have versions only as examples, or for generating secrets: they are compared with nothing.
var exampleFiles = []string{
	"internal/gendocs/changes.go", "talosops/gitopscheck/facts.go", "examples/one-node/cluster/cluster.go",
	"lab/providers/talos/secrets.go",
}

// release matches a full or minor version of Talos or Kubernetes.
var release = regexp.MustCompile(`^v?1\.(1[0-9]|[2-4][0-9])(\.[0-9]+)?\.?$`)

// contract matches a version contract of Talos' machinery.
var contract = regexp.MustCompile(`^config\.TalosVersion1_\d+$`)

// TestOnlyTheTablesKnowReleases: a release is one row in a table. Other code of the program and the lab asks the table,
// and compares no versions.
func TestOnlyTheTablesKnowReleases(t *testing.T) {
	t.Parallel()

	for _, name := range files(t, ".go") {
		if strings.HasSuffix(name, "_test.go") || slices.Contains(tableFiles, name) || slices.Contains(exampleFiles, name) ||
			strings.HasSuffix(path.Dir(name), "test") { // a package that only tests use
			continue
		}

		set := token.NewFileSet()
		file, err := parser.ParseFile(set, filepath.Join(root, name), nil, parser.SkipObjectResolution)
		require.NoError(t, err)

		assert.Empty(t, releasesIn(set, file), "%s: ask the release (%s)", name, tableFiles[0])
	}
}

// releasesIn returns the lines of a file that name releases.
func releasesIn(set *token.FileSet, file *ast.File) (found []string) {
	report := func(n ast.Node, text string) {
		found = append(found, "line "+strconv.Itoa(set.Position(n.Pos()).Line)+": "+text)
	}

	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.BasicLit:
			if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING && release.MatchString(text) {
				report(n, text)
			}
		case *ast.SelectorExpr:
			if of, ok := n.X.(*ast.Ident); ok && contract.MatchString(of.Name+"."+n.Sel.Name) {
				report(n, of.Name+"."+n.Sel.Name)
			}
		}

		return true
	})

	return found
}

func TestWhatNamesAReleaseIsFound(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]int{
		`var a = semver.Compare(b, "v1.13.0")`: 1, `var a = "v1.14"`: 1, `var a = "1.37"`: 1, `var a = config.TalosVersion1_12`: 1,
		`var a = "write it in full, such as v1.14.4"`: 0, `var a = "v1"`: 0, `var a = "1.2"`: 0,
	} {
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, "a.go", "package a\n"+text, parser.SkipObjectResolution)
		require.NoError(t, err)
		assert.Len(t, releasesIn(set, file), want, text)
	}
}
