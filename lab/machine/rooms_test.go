package machine_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRoomsImportWhatArchitectureSays compares the imports of every package below this one with its row in docs/architecture.md. None imports this package back.
func TestRoomsImportWhatArchitectureSays(t *testing.T) {
	t.Parallel()

	content, err := os.ReadFile("../../docs/architecture.md")
	require.NoError(t, err)

	allowed := map[string][]string{}
	quoted := regexp.MustCompile("`(lab/[^`]*)`")

	for _, row := range regexp.MustCompile("(?m)^\\| `(lab/machine/[a-z]+)` \\|.*\\|(.*)\\|$").FindAllStringSubmatch(string(content), -1) {
		allowed[row[1]] = []string{}

		for _, name := range quoted.FindAllStringSubmatch(row[2], -1) {
			allowed[row[1]] = append(allowed[row[1]], name[1])
		}

		slices.Sort(allowed[row[1]])
	}

	found := imports(t)

	assert.ElementsMatch(t, slices.Collect(maps.Keys(found)), slices.Collect(maps.Keys(allowed)), "rows of docs/architecture.md and packages")

	for room, imported := range found {
		assert.Equal(t, allowed[room], imported, "what %s imports of the project, and its row in docs/architecture.md", room)
		assert.NotContains(t, imported, "lab/machine", room)
	}
}

// imports are the packages of the project that each package below this one imports, without those of tests.
func imports(t *testing.T) map[string][]string {
	t.Helper()

	found := map[string][]string{}

	require.NoError(t, filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Dir(path) == "." || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}

		room := "lab/machine/" + filepath.ToSlash(filepath.Dir(path))
		if found[room] == nil {
			found[room] = []string{}
		}

		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		require.NoError(t, err)

		for _, spec := range file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			require.NoError(t, err)

			if own, ok := strings.CutPrefix(imported, "proxmox-talos/"); ok && !slices.Contains(found[room], own) {
				found[room] = append(found[room], own)
			}
		}

		slices.Sort(found[room])

		return nil
	}))

	return found
}
