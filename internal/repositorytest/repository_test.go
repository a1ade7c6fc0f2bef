package repositorytest

import (
	"go/build"
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

// files returns the paths below the repository's root with one of the suffixes, without hidden folders, which contain
// build results.
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

// TestFileNames: underscores separate words, and no last word, such as windows, excludes a file on other platforms by
// accident.
func TestFileNames(t *testing.T) {
	t.Parallel()

	noPlatform := build.Default
	noPlatform.GOOS, noPlatform.GOARCH = "none", "none"

	for _, path := range files(t, ".go") {
		folder, name := filepath.Split(path)
		assert.Regexp(t, `^[a-z0-9]+(_[a-z0-9]+)*\.go$`, name, path)

		built, err := noPlatform.MatchFile(filepath.Join(root, folder), name)
		require.NoError(t, err)
		assert.True(t, built, "%s: its name restricts it to a platform", path)
	}
}

// TestNoProgramIsAmongTheSources: `go build` in a folder of cmd leaves a program there, which `git add` would add.
func TestNoProgramIsAmongTheSources(t *testing.T) {
	t.Parallel()

	for _, path := range files(t, "") {
		file, err := os.Open(filepath.Join(root, path))
		require.NoError(t, err)

		magic := make([]byte, 4)
		_, _ = file.Read(magic) // shorter files are no programs
		require.NoError(t, file.Close())
		assert.NotEqual(t, "\x7fELF", string(magic), "%s is a program: remove it", path)
	}
}
