package repositorytest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/mod/modfile"
)

// requirements returns the versions in a go.mod file, by module.
func requirements(t *testing.T, text string) map[string]string {
	t.Helper()

	file, err := modfile.Parse("go.mod", []byte(text), nil)
	require.NoError(t, err)

	versions := map[string]string{}
	for _, r := range file.Require {
		versions[r.Mod.Path] = r.Mod.Version
	}

	return versions
}

// versionDifferences returns the modules of the program that another go.mod file has in another version.
func versionDifferences(program, others map[string]string, where string) []string {
	var found []string

	for module, version := range program {
		if other, shared := others[module]; shared && other != version {
			found = append(found, fmt.Sprintf("%s %s, in %s %s", module, version, where, other))
		}
	}

	slices.Sort(found)

	return found
}

// TestTheProgramIsTestedOnTheVersionsItShipsWith: the lab, whose tests run the program, has the same module versions.
func TestTheProgramIsTestedOnTheVersionsItShipsWith(t *testing.T) {
	t.Parallel()

	const lab = "lab/go.mod"

	assert.Empty(t, versionDifferences(requirements(t, read(t, "go.mod")), requirements(t, read(t, lab)), lab),
		"align them: make fmt")
	assert.Equal(t, []string{"a v1.0.0, in lab/go.mod v1.0.1"}, versionDifferences(
		requirements(t, "module m\nrequire (\n\ta v1.0.0\n\tb v1.0.0 // indirect\n\tc v1.0.0\n)\n"),
		requirements(t, "module m\nrequire (\n\ta v1.0.1 // indirect\n\tb v1.0.0\n\td v1.0.0\n)\n"), lab))
}
