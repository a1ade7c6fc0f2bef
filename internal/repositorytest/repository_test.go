package repositorytest

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const root = "../.."

// files are the paths below the repository's root that end with one of the suffixes, without hidden folders, which hold
// what was built or generated.
func files(t *testing.T, suffixes ...string) []string {
	t.Helper()

	var found []string

	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}

		if entry.IsDir() {
			if name := entry.Name(); strings.HasPrefix(name, ".") && path != root && name != ".github" ||
				name == "node_modules" {
				return filepath.SkipDir
			}

			return nil
		}

		if slices.ContainsFunc(suffixes, func(suffix string) bool { return strings.HasSuffix(path, suffix) }) {
			name, err := filepath.Rel(root, path)
			found = append(found, filepath.ToSlash(name))

			return err
		}

		return nil
	}))
	require.NotEmpty(t, found)

	return found
}

func read(t *testing.T, path string) string {
	t.Helper()

	text, err := os.ReadFile(filepath.Join(root, path))
	require.NoError(t, err)

	return string(text)
}

// TestFileNames keeps one scheme: words of a name are joined, as Go joins those of a package; an underscore stands
// before _test only.
func TestFileNames(t *testing.T) {
	t.Parallel()

	for _, path := range files(t, ".go") {
		name := strings.TrimSuffix(strings.TrimSuffix(filepath.Base(path), ".go"), "_test")
		assert.NotContains(t, name, "_", "%s: join the words of the name", path)
	}
}
