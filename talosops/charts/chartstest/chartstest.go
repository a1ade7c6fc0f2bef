// Package chartstest serves charts for tests on loopback.
package chartstest

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	containers "github.com/google/go-containerregistry/pkg/registry"
	"github.com/stretchr/testify/require"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/registry"
	repo "helm.sh/helm/v4/pkg/repo/v1"
)

// Repository serves charts from an http repository, and returns its URL.
func Repository(t *testing.T, charts ...*chart.Chart) string {
	t.Helper()

	folder := t.TempDir()
	for _, one := range charts {
		_, err := chartutil.Save(one, folder)
		require.NoError(t, err)
	}

	index, err := repo.IndexDirectory(folder, "")
	require.NoError(t, err)
	index.SortEntries()
	require.NoError(t, index.WriteFile(filepath.Join(folder, "index.yaml"), 0o600))

	server := httptest.NewServer(http.FileServer(http.Dir(folder)))
	t.Cleanup(server.Close)

	return server.URL
}

// Registry serves charts from a registry, and returns its oci:// address and the digests of their manifests.
func Registry(t *testing.T, charts ...*chart.Chart) (address string, digests []string) {
	t.Helper()

	server := httptest.NewServer(containers.New(containers.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)

	client, err := registry.NewClient(registry.ClientOptPlainHTTP(), registry.ClientOptWriter(io.Discard),
		registry.ClientOptCredentialsFile(filepath.Join(t.TempDir(), "config.json")))
	require.NoError(t, err)

	address = strings.Replace(server.URL, "http://", "oci://", 1) + "/charts"

	for _, one := range charts {
		archive, err := chartutil.Save(one, t.TempDir())
		require.NoError(t, err)

		content, err := os.ReadFile(archive) //nolint:gosec // test data
		require.NoError(t, err)

		pushed, err := client.Push(content, strings.TrimPrefix(address, "oci://")+"/"+one.Name()+":"+one.Metadata.Version)
		require.NoError(t, err)

		digests = append(digests, pushed.Manifest.Digest)
	}

	return address, digests
}
