package sdktest

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestGenSDK lets the Pulumi CLI generate the SDKs for which it has a language host: its release has them, a CLI that
// is built from its Go module has none.
//
//nolint:paralleltest // the environment is the process's
func TestGenSDK(t *testing.T) {
	t.Setenv("PULUMI_HOME", t.TempDir())
	t.Setenv("PULUMI_SKIP_UPDATE_CHECK", "true")

	cli, plugin := toolPath(t, "pulumi"), toolPath(t, "pulumi-resource-talos-proxmox")

	for language, test := range map[string]struct{ source, cluster string }{
		"nodejs": {plugin, "cluster/talosCluster.ts"},
		"python": {plugin, "talos_proxmox/cluster/talos_cluster.py"},
		"go":     {plugin, "talosproxmox/cluster/talosCluster.go"},
		"dotnet": {withLogo(t), "Cluster/TalosCluster.cs"},
	} {
		t.Run(language, func(t *testing.T) {
			if _, err := exec.LookPath("pulumi-language-" + language); err != nil {
				t.Skipf("needs pulumi-language-%s on PATH: the release of the Pulumi CLI has it", language)
			}

			folder := t.TempDir()
			run(t, folder, cli, "package", "gen-sdk", test.source, "--language", language, "--out", folder)
			assert.FileExists(t, filepath.Join(folder, language, test.cluster))
		})
	}
}

// toolPath is the path of a program that make builds.
func toolPath(t *testing.T, name string) string {
	t.Helper()

	path, err := filepath.Abs(filepath.Join(project, ".bin", name))
	require.NoError(t, err)
	require.FileExists(t, path, "`make test` builds it")

	return path
}

// withLogo returns a copy of the schema with a logo on this machine: the language host for .NET would download
// Pulumi's.
func withLogo(t *testing.T) string {
	t.Helper()

	logo := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(logo.Close)

	text, err := os.ReadFile(filepath.Join(project, schemaFile))
	require.NoError(t, err)

	var document map[string]any
	require.NoError(t, json.Unmarshal(text, &document))

	document["logoUrl"] = logo.URL

	text, err = json.Marshal(document)
	require.NoError(t, err)

	path := filepath.Join(t.TempDir(), "schema.json")
	require.NoError(t, os.WriteFile(path, text, 0o600))

	return path
}
