package charts

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"helm.sh/helm/v4/pkg/chart/common"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"talos-proxmox/talosops/charts/chartstest"
)

// once does not retry: a test's server responds or does not.
var once = Fetcher{Timeout: time.Minute, Attempts: 1} //nolint:gochecknoglobals // a constant

func testChart() *chart.Chart {
	return &chart.Chart{
		Metadata: &chart.Metadata{
			APIVersion: "v2", Name: "network", Version: "1.2.3",
			Dependencies: []*chart.Dependency{{Name: "part", Alias: "other"}},
		},
		Values: map[string]any{
			"cgroup":       map[string]any{"autoMount": map[string]any{"enabled": true}},
			"annotations":  map[string]any{},
			"nodeSelector": map[string]any{"kubernetes.io/os": "linux"},
			"unset":        nil,
			"replicas":     1,
			"other":        map[string]any{"metrics": true},
		},
		Templates: []*common.File{{
			Name: "templates/a.yaml",
			Data: []byte("a: {{ .Values.undeclared.b }}{{ .Values.cgroup.automounts }}{{ index .Values \"replica\" }}\n"),
		}},
	}
}

// TestUnknownValues: unknown values are reported with a suggestion. Maps with arbitrary keys accept any, and values
// that a template reads are known even without a default.
func TestUnknownValues(t *testing.T) {
	t.Parallel()

	c := testChart()
	assert.Empty(t, UnknownValues(c, map[string]any{
		"annotations": map[string]any{"a": "b"}, "nodeSelector": map[string]any{"gpu": "yes"}, "unset": 1,
		"undeclared": map[string]any{"b": 1}, "global": map[string]any{}, "part": map[string]any{}, "other": map[string]any{},
		"cgroup": map[string]any{"hostRoot": "/sys/fs/cgroup", "automounts": 1}, "replica": 2,
	}))

	assert.Equal(t, []string{
		"cgroup.automount: write cgroup.autoMount", "cgruop: write cgroup", "nonsense: remove it",
	}, UnknownValues(c, map[string]any{
		"cgroup": map[string]any{"automount": map[string]any{"enabled": false}}, "cgruop": 1, "nonsense": 1,
	}))

	c.SetDependencies(&chart.Chart{
		Metadata: &chart.Metadata{APIVersion: "v2", Name: "part", Version: "1.0.0"},
		Values:   map[string]any{"persistence": map[string]any{"size": "1Gi"}},
	})
	assert.Equal(t, []string{"other.nonsense: remove it", "other.persistenec: write other.persistence"},
		UnknownValues(c, map[string]any{"other": map[string]any{
			"metrics": false, "nonsense": 1, "persistenec": map[string]any{}, "global": map[string]any{"a": 1},
		}}))

	c.Templates = append(c.Templates, &common.File{Name: "templates/b.yaml", Data: []byte("{{ toYaml .Values | nindent 2 }}")})
	assert.Equal(t, []string{"cgruop: write cgroup"}, UnknownValues(c, map[string]any{"cgruop": 1, "nonsense": 1}),
		"a chart that reads any value")
}

// TestFetchChart reads a chart from a file, over HTTP and from a registry, and refuses another version or digest.
func TestFetchChart(t *testing.T) {
	t.Parallel()

	folder := t.TempDir()
	archive, err := chartutil.Save(testChart(), folder)
	require.NoError(t, err)

	content, err := os.ReadFile(archive) //nolint:gosec // test data
	require.NoError(t, err)

	sum := sha256.Sum256(content)
	digest := "sha256:" + hex.EncodeToString(sum[:])

	server := httptest.NewServer(http.FileServer(http.Dir(folder)))
	t.Cleanup(server.Close)

	registry, manifests := chartstest.Registry(t, testChart())
	oci := registry + "/network"

	for _, test := range [][4]string{ // source, version, wanted digest, returned digest
		{archive, "1.2.3", digest, digest},
		{"file://" + archive, "v1.2.3", digest, digest},
		{server.URL + "/" + filepath.Base(archive), "1.2.3", digest, digest},
		{oci, "1.2.3", manifests[0], manifests[0]},
		{oci, "1.2.3", "", manifests[0]},
		{oci, manifests[0], "", manifests[0]},
	} {
		found, digest, err := once.Chart(t.Context(), test[0], test[1], test[2])
		require.NoError(t, err, test)
		assert.Equal(t, "network", found.Name())
		assert.Equal(t, test[3], digest)
	}

	for name, test := range map[string]struct{ source, version, digest, want string }{
		"another digest": {archive, "1.2.3", "sha256:00", "has the digest " + digest + ", not sha256:00"},
		"another digest in a registry": {
			oci, "1.2.3", "sha256:00",
			"the chart " + oci + " has the digest " + manifests[0] + ", not sha256:00: it is not what was meant",
		},
		"another version": {archive, "1.2.4", "", "is network 1.2.3, not 1.2.4"},
		"no version":      {oci, "1.2.4", "", oci + " does not have it: the newest are 1.2.3; correct the version"},
		"no file":         {archive + "z", "1.2.3", "", "no such file or directory"},
		"no scheme":       {"ftp://a", "1", "", "use oci://, https://, file:// or a path"},
	} {
		_, _, err := once.Chart(t.Context(), test.source, test.version, test.digest)
		require.ErrorContains(t, err, test.want, name)
	}
}

// TestIndex finds a version in an http repository; the error of a missing one names the available ones.
func TestIndex(t *testing.T) {
	t.Parallel()

	newer := testChart()
	newer.Metadata.Version = "1.10.0"
	address := chartstest.Repository(t, testChart(), newer)

	index, err := once.Index(t.Context(), address)
	require.NoError(t, err)

	source, err := index.Source("network", "v1.2.3")
	require.NoError(t, err)
	assert.Equal(t, address+"/network-1.2.3.tgz", source)

	_, err = index.Source("network", "1.2.4")
	require.ErrorIs(t, err, ErrNoVersion)
	require.EqualError(t, err, address+" does not have it: the newest are 1.10.0, 1.2.3; correct the version")

	_, err = index.Source("netwerk", "1.2.3")
	require.EqualError(t, err, address+" does not have it: did you mean network?")

	_, err = once.Index(t.Context(), address+"/nowhere")
	require.ErrorContains(t, err, "unable to read the index of "+address+"/nowhere")
	require.NotErrorIs(t, err, ErrNoVersion)
}

// TestIndexIsInterruptible: a server that never responds does not block a canceled context.
func TestIndexIsInterruptible(t *testing.T) {
	t.Parallel()

	requested, done := make(chan struct{}), make(chan struct{})

	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(requested)
		<-done
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(done) })

	ctx, cancel := context.WithCancel(t.Context())

	go func() {
		<-requested
		cancel()
	}()

	_, err := once.Index(ctx, server.URL)
	require.ErrorIs(t, err, context.Canceled)
}

// TestFluxReleaseOf has helm-controller's defaults: the records are in the HelmRelease's namespace, whatever its
// target, and a name that is too long for Helm ends with the first digits of its SHA-256.
func TestFluxReleaseOf(t *testing.T) {
	t.Parallel()

	const long = "a-name-that-says-what-everything-is-for"

	for name, test := range map[string]struct {
		spec map[string]any
		want FluxRelease
	}{
		"all set": {
			map[string]any{"releaseName": "other", "targetNamespace": "kube-system", "storageNamespace": "records"},
			FluxRelease{"other", "records", "kube-system"},
		},
		"a target":      {map[string]any{"targetNamespace": "kube-system"}, FluxRelease{"kube-system-cilium", "flux-system", "kube-system"}},
		"nothing":       {map[string]any{}, FluxRelease{"cilium", "flux-system", "flux-system"}},
		"only the name": {map[string]any{"releaseName": "other"}, FluxRelease{"other", "flux-system", "flux-system"}},
		"a name that is as long as Helm takes": {
			map[string]any{"targetNamespace": long + "-ABCDEF"}, FluxRelease{long + "-ABCDEF-cilium", "flux-system", long + "-ABCDEF"},
		},
		"a name that is too long": {
			map[string]any{"targetNamespace": long + "-ABCDEFG"},
			FluxRelease{long + "--0492ba4a4c15", "flux-system", long + "-ABCDEFG"},
		},
	} {
		assert.Equal(t, test.want, FluxReleaseOf(&unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"name": "cilium", "namespace": "flux-system"}, "spec": test.spec,
		}}), name)
	}
}
