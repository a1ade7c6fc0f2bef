// Package goldentest compares files with what they should be: golden files of tests, and generated documents.
package goldentest

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite golden files and generated documents")

// Equal fails the test if a file is not as it should be. With -update it writes the file.
func Equal(t *testing.T, path, want string) {
	t.Helper()

	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))  //nolint:gosec // files of the repository
		require.NoError(t, os.WriteFile(path, []byte(want), 0o644)) //nolint:gosec // files of the repository
	}

	have, err := os.ReadFile(path)
	require.NoError(t, err, "go test -update in the package's folder writes it")
	require.Equal(t, want, string(have), "%s is stale; go test -update in the package's folder rewrites it", path)
}
