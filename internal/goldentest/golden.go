// Package goldentest compares golden files of tests and generated documents with their expected content.
package goldentest

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"text/template"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite golden files and generated documents")

// Equal fails the test if a file has other content. With -update it writes the file.
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

// Rendered fails the test if a document differs from a template rendered with data. With -update it writes the
// document.
func Rendered(t *testing.T, path, from string, data any, functions template.FuncMap) {
	t.Helper()

	page, err := template.New(filepath.Base(from)).Funcs(functions).ParseFiles(from)
	require.NoError(t, err)

	var text strings.Builder

	require.NoError(t, page.Execute(&text, data))
	Equal(t, path, text.String())
}
