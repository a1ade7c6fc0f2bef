package charts_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"

	"talos-proxmox/lab/charts"
)

func TestRepository(t *testing.T) {
	t.Parallel()

	folder := t.TempDir()
	repository := charts.Handler(folder)
	get := func(path string) (int, []byte) {
		answer := httptest.NewRecorder()
		repository.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))

		return answer.Code, answer.Body.Bytes()
	}

	_, text := get("/charts/index.yaml")
	assert.YAMLEq(t, "{apiVersion: v1, entries: {}}", string(text))

	archive := packChart(t, "web/Chart.yaml", "{apiVersion: v2, name: web, version: 1.2.3, kubeVersion: '>= 1.30', displayName: Web}")
	require.NoError(t, os.WriteFile(filepath.Join(folder, "web.tgz"), archive, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "secret.txt"), []byte("other"), 0o600))

	status, text := get("/charts/index.yaml")
	assert.Equal(t, http.StatusOK, status)

	sum := sha256.Sum256(archive)

	var index struct{ Entries map[string][]map[string]any }
	require.NoError(t, yaml.Unmarshal(text, &index))
	assert.Equal(t, map[string][]map[string]any{"web": {{
		"apiVersion": "v2", "name": "web", "version": "1.2.3", "kubeVersion": ">= 1.30",
		"digest": hex.EncodeToString(sum[:]), "urls": []any{"web.tgz"},
	}}}, index.Entries)

	status, text = get("/charts/web.tgz")
	assert.Equal(t, http.StatusOK, status)
	assert.Equal(t, archive, text)

	for _, path := range []string{"/charts/secret.txt", "/charts/other.tgz", "/charts/", "/"} {
		status, _ = get(path)
		assert.Equal(t, http.StatusNotFound, status, path)
	}

	require.NoError(t, os.WriteFile(filepath.Join(folder, "bad.tgz"), packChart(t, "bad/values.yaml", ""), 0o600))

	status, text = get("/charts/index.yaml")
	assert.Equal(t, http.StatusInternalServerError, status)
	assert.Contains(t, string(text), "bad.tgz: it has no Chart.yaml")
}

func packChart(t *testing.T, name, text string) []byte {
	t.Helper()

	var archive bytes.Buffer

	zip := gzip.NewWriter(&archive)
	files := tar.NewWriter(zip)
	require.NoError(t, files.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))}))

	_, err := files.Write([]byte(text))
	require.NoError(t, err)
	require.NoError(t, files.Close())
	require.NoError(t, zip.Close())

	return archive.Bytes()
}
