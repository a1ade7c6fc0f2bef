package engine_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/stretchr/testify/require"
)

// Media types: a chart as Helm pushes it, and a tree as Flux does.
const (
	manifestType    = "application/vnd.oci.image.manifest.v1+json"
	chartConfigType = "application/vnd.cncf.helm.config.v1+json"
	chartType       = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
	treeConfigType  = "application/vnd.cncf.flux.config.v1+json"
	treeType        = "application/vnd.cncf.flux.content.v1.tar+gzip"
)

// ociRegistry is a container registry on loopback.
type ociRegistry struct {
	t       testing.TB
	server  *httptest.Server
	address string // host:port
	ca      []byte // of https, as PEM
}

// newRegistry starts an empty registry. Helm uses https only, and Flux http if the address is 127.0.0.1.
func newRegistry(t testing.TB, secure bool) *ociRegistry {
	t.Helper()

	server := httptest.NewUnstartedServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	if secure {
		server.StartTLS()
	} else {
		server.Start()
	}

	t.Cleanup(server.Close)

	r := &ociRegistry{t: t, server: server, address: server.Listener.Addr().String()}
	if secure {
		r.ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	}

	return r
}

func (r *ociRegistry) send(method, path, kind string, content []byte) {
	r.t.Helper()

	req, err := http.NewRequestWithContext(r.t.Context(), method, r.server.URL+path, bytes.NewReader(content))
	require.NoError(r.t, err)
	req.Header.Set("Content-Type", kind)

	answer, err := r.server.Client().Do(req)
	require.NoError(r.t, err)
	require.NoError(r.t, answer.Body.Close())
	require.Equal(r.t, http.StatusCreated, answer.StatusCode, path)
}

// descriptor describes a blob.
type descriptor struct {
	MediaType string `json:"mediaType"`
	Digest    string `json:"digest"`
	Size      int    `json:"size"`
}

// push adds one layer under a name and a tag, and returns the digest of its manifest.
func (r *ociRegistry) push(name, tag string, configType string, config []byte, layerType string, layer []byte) string {
	r.t.Helper()

	blob := func(kind string, content []byte) descriptor {
		sum := sha256.Sum256(content)
		digest := "sha256:" + hex.EncodeToString(sum[:])
		r.send(http.MethodPost, "/v2/"+name+"/blobs/uploads/?digest="+digest, "application/octet-stream", content)

		return descriptor{MediaType: kind, Digest: digest, Size: len(content)}
	}

	manifest, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": manifestType, "config": blob(configType, config),
		"layers": []descriptor{blob(layerType, layer)},
	})
	require.NoError(r.t, err)
	r.send(http.MethodPut, "/v2/"+name+"/manifests/"+tag, manifestType, manifest)

	sum := sha256.Sum256(manifest)

	return "sha256:" + hex.EncodeToString(sum[:])
}

// pushTree adds files as `flux push artifact` packs them.
func (r *ociRegistry) pushTree(name, tag string, files map[string]string) string {
	r.t.Helper()

	var packed bytes.Buffer

	zip := gzip.NewWriter(&packed)
	archive := tar.NewWriter(zip)

	for _, file := range slices.Sorted(maps.Keys(files)) {
		require.NoError(r.t, archive.WriteHeader(&tar.Header{Name: file, Mode: 0o644, Size: int64(len(files[file]))}))
		_, err := io.Copy(archive, strings.NewReader(files[file]))
		require.NoError(r.t, err)
	}

	require.NoError(r.t, archive.Close())
	require.NoError(r.t, zip.Close())

	return fmt.Sprintf("%s@%s", tag, r.push(name, tag, treeConfigType, []byte("{}"), treeType, packed.Bytes()))
}
