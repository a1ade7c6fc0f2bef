package repositorytest

import (
	"fmt"
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
	"golang.org/x/mod/modfile"
)

const architecture = "docs/dev/architecture.md"

// libraries are the large libraries that a package may import only if the table of docs/dev/architecture.md says so, by
// prefixes of import paths.
var libraries = map[string][]string{ //nolint:gochecknoglobals // a table
	"Pulumi":     {"github.com/pulumi/", "github.com/pulumiverse/", "github.com/muhlba91/pulumi-"},
	"Talos":      {"github.com/siderolabs/", "github.com/cosi-project/"},
	"Proxmox":    {"github.com/luthermonson/go-proxmox"},
	"Kubernetes": {"k8s.io/", "sigs.k8s.io/", "go.etcd.io/etcd/"},
	"S3":         {"github.com/minio/"},
}

// rule is a row of the table: folders, and what their packages may import.
type rule struct {
	folders []string
	// imports are folders of the project; x/* means the folders in x, * everything.
	imports   []string
	libraries []string
	// plain packages import only the standard library and the project.
	plain bool
}

var quoted = regexp.MustCompile("`([^`]+)`")

func codeSpans(cell string) []string {
	var found []string
	for _, match := range quoted.FindAllStringSubmatch(cell, -1) {
		found = append(found, match[1])
	}

	return found
}

// parseRules reads the table below the heading Rooms: folder, contents, knows, may import.
func parseRules(text string) ([]rule, error) {
	_, table, _ := strings.Cut(text, "\n## Rooms\n")
	table, _, _ = strings.Cut(table, "\n## ")

	var found []rule

	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if !strings.HasPrefix(line, "| `") {
			continue
		}

		if len(cells) != 4 {
			return nil, fmt.Errorf("%s has %d columns, not 4", strings.TrimSpace(line), len(cells))
		}

		r := rule{folders: codeSpans(cells[0]), imports: codeSpans(cells[3])}

		switch imports := strings.TrimSpace(cells[3]); {
		case imports == "everything":
			r.imports = []string{"*"}
		case imports != "nothing" && len(r.imports) == 0:
			return nil, fmt.Errorf("%s: say `nothing`, `everything` or folders", cells[0])
		}

		for word := range strings.SplitSeq(strings.TrimSpace(cells[2]), ", ") {
			switch {
			case word == "standard library":
				r.plain = true
			case word == "all":
				for library := range libraries {
					r.libraries = append(r.libraries, library)
				}
			case libraries[word] != nil:
				r.libraries = append(r.libraries, word)
			case word != "":
				return nil, fmt.Errorf("%s: %q is not a library", cells[0], word)
			}
		}

		found = append(found, r)
	}

	return found, nil
}

// matchesPattern reports whether a pattern of the table matches a folder.
func matchesPattern(pattern, folder string) bool {
	return pattern == "*" || pattern == folder || pattern == path.Dir(folder)+"/*"
}

// findRule returns the row of a folder: its own, or else one with a pattern.
func findRule(all []rule, folder string) *rule {
	for _, pattern := range []string{folder, path.Dir(folder) + "/*"} {
		for i := range all {
			if slices.Contains(all[i].folders, pattern) {
				return &all[i]
			}
		}
	}

	return nil
}

// checkImports returns the imports of a folder that the table does not allow.
func checkImports(all []rule, module, folder string, imports []string) []string {
	own := findRule(all, folder)
	if own == nil {
		return []string{folder + " has no row"}
	}

	var found []string

	for _, imported := range imports {
		target, isOwn := strings.CutPrefix(imported, module+"/")

		first, _, _ := strings.Cut(imported, "/")
		switch {
		case isOwn:
			if slices.ContainsFunc(own.imports, func(pattern string) bool { return matchesPattern(pattern, target) }) {
				continue
			}

			found = append(found, fmt.Sprintf("%s may not import %s", folder, target))
		case !strings.Contains(first, "."):
		case own.plain:
			found = append(found, fmt.Sprintf("%s may import the standard library only, not %s", folder, imported))
		default:
			for library, prefixes := range libraries {
				if !slices.Contains(own.libraries, library) &&
					slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(imported, prefix) }) {
					found = append(found, fmt.Sprintf("%s may not know %s (%s)", folder, library, imported))
				}
			}
		}
	}

	return found
}

// TestImports compares the imports of every package, without its tests, with the table of docs/dev/architecture.md.
func TestImports(t *testing.T) {
	t.Parallel()

	all, err := parseRules(read(t, architecture))
	require.NoError(t, err)
	require.NotEmpty(t, all)

	module := modfile.ModulePath([]byte(read(t, "go.mod")))

	imports := map[string][]string{}

	for _, name := range files(t, ".go") {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}

		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, name), nil, parser.ImportsOnly)
		require.NoError(t, err)

		folder := path.Dir(name)
		if folder == "." {
			folder = "main.go"
		}

		imports[folder] = append(imports[folder], "")

		for _, spec := range file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			require.NoError(t, err)

			imports[folder] = append(imports[folder], imported)
		}
	}

	for folder, imported := range imports {
		slices.Sort(imported)
		assert.Empty(t, checkImports(all, module, folder, slices.Compact(imported)[1:]), "see the table of %s", architecture)
	}

	for _, r := range all {
		for _, pattern := range slices.Concat(r.folders, r.imports) {
			matches, err := filepath.Glob(filepath.Join(root, pattern))
			require.NoError(t, err)
			assert.NotEmpty(t, matches, "the table of %s has %s, which does not exist", architecture, pattern)
		}
	}
}

func TestImportRulesFindEachMistake(t *testing.T) {
	t.Parallel()

	const table = "\n## Rooms\n| `main.go` | the start | Pulumi | `stacks` |\n| `plain` | values | standard library | nothing |\n" +
		"| `stacks` | wiring | Pulumi, Talos | `plain`, `stacks/part` |\n| `lab/*` | the lab | all | everything |\n" +
		"| `lab/machine` | machines | | `lab/machine/*` |\n| `lab/machine/disks` | a room | | nothing |\n\n## More\n| `not/read` |\n"

	all, err := parseRules(table)
	require.NoError(t, err)
	require.Len(t, all, 6)

	for name, test := range map[string]struct {
		folder, imported, want string
	}{
		"what the table allows":      {"stacks", "m/plain", ""},
		"the wrong direction":        {"plain", "m/stacks", "plain may not import stacks"},
		"a folder in an allowed one": {"main.go", "m/stacks/part", "main.go may not import stacks/part"},
		"the standard library":       {"plain", "net/netip", ""},
		"a library in a plain package": {
			"plain", "go.yaml.in/yaml/v4", "plain may import the standard library only, not go.yaml.in/yaml/v4",
		},
		"a world that it knows": {"stacks", "github.com/siderolabs/talos/pkg/machinery", ""},
		"a world that it does not know": {
			"stacks", "k8s.io/api/core/v1", "stacks may not know Kubernetes (k8s.io/api/core/v1)",
		},
		"everything":                  {"lab/server", "m/stacks", ""},
		"nothing imports the lab":     {"stacks", "m/lab/server", "stacks may not import lab/server"},
		"a machine imports its rooms": {"lab/machine", "m/lab/machine/disks", ""},
		"a room does not import the machine": {
			"lab/machine/disks", "m/lab/machine", "lab/machine/disks may not import lab/machine",
		},
		"a room does not import its neighbour": {
			"lab/machine/disks", "m/lab/machine/kernel", "lab/machine/disks may not import lab/machine/kernel",
		},
		"a room without a row":   {"lab/machine/kernel", "fmt", "lab/machine/kernel has no row"},
		"a folder without a row": {"new", "fmt", "new has no row"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, test.want, strings.Join(checkImports(all, "m", test.folder, []string{test.imported}), "\n"))
		})
	}

	for _, row := range []string{"| `a` | x | nothing |", "| `a` | x | | some |", "| `a` | x | Plan 9 | nothing |"} {
		_, err := parseRules("\n## Rooms\n" + row + "\n")
		require.Error(t, err, row)
	}
}
