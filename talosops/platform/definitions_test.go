package platform

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/release/common"
	releasev1 "helm.sh/helm/v4/pkg/release/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/clustertest"
)

// api is as much of a Kubernetes API as releases and definitions need: it keeps objects by their paths, and what was
// written in order.
type api struct {
	mu      sync.Mutex
	objects map[string]map[string]any
	written []string
}

const (
	definitionsPath  = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"
	helmReleasesPath = "/apis/helm.toolkit.fluxcd.io/v2/namespaces/flux-system/helmreleases/"
	tlsRoutes        = "tlsroutes.gateway.networking.k8s.io"
)

// discovered is what the API says it has.
func discovered() map[string]any {
	resources := func(version string, list ...metav1.APIResource) metav1.APIResourceList {
		return metav1.APIResourceList{
			TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: version, APIResources: list,
		}
	}
	groups := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}

	for _, name := range []string{"apiextensions.k8s.io/v1", "helm.toolkit.fluxcd.io/v2"} {
		version := metav1.GroupVersionForDiscovery{GroupVersion: name, Version: path.Base(name)}
		groups.Groups = append(groups.Groups, metav1.APIGroup{
			Name: path.Dir(name), Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version,
		})
	}

	return map[string]any{
		"/version": map[string]any{"major": "1", "minor": "37", "gitVersion": "v1.37.2"},
		"/api":     metav1.APIVersions{Versions: []string{"v1"}}, "/apis": groups,
		"/api/v1": resources("v1", metav1.APIResource{Name: "secrets", Kind: "Secret", Namespaced: true}),
		"/apis/apiextensions.k8s.io/v1": resources("apiextensions.k8s.io/v1", metav1.APIResource{
			Name: "customresourcedefinitions", Kind: "CustomResourceDefinition",
		}),
		"/apis/helm.toolkit.fluxcd.io/v2": resources("helm.toolkit.fluxcd.io/v2", metav1.APIResource{
			Name: "helmreleases", Kind: "HelmRelease", Namespaced: true,
		}),
	}
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()

	w.Header().Set("Content-Type", "application/json")

	answer := discovered()[r.URL.Path]
	if answer == nil {
		answer = a.answer(w, r)
	}

	_ = json.NewEncoder(w).Encode(answer)
}

func (a *api) answer(w http.ResponseWriter, r *http.Request) any {
	at := r.URL.Path

	if r.Method == http.MethodGet {
		if object := a.objects[at]; object != nil {
			return object
		}

		if !strings.Contains(path.Base(at), ".") { // a kind, and none of Helm's records or definitions
			return a.list(at, r.URL.Query().Get("labelSelector"))
		}

		w.WriteHeader(http.StatusNotFound)

		return metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound}
	}

	var object map[string]any

	text, err := io.ReadAll(r.Body)
	if r.Header.Get("Content-Type") == runtime.ContentTypeProtobuf { // what Helm keeps records with
		var record runtime.Object
		if record, _, err = scheme.Codecs.UniversalDeserializer().Decode(text, nil, nil); err == nil {
			text, err = json.Marshal(record)
		}
	}

	if err == nil {
		err = json.Unmarshal(text, &object)
	}

	if err != nil {
		w.WriteHeader(http.StatusBadRequest)

		return metav1.Status{Status: metav1.StatusFailure, Message: err.Error(), Code: http.StatusBadRequest}
	}

	if r.Method == http.MethodPost {
		metadata, _ := object["metadata"].(map[string]any)
		at = path.Join(at, fmt.Sprint(metadata["name"]))
	}

	a.objects[at] = object
	a.written = append(a.written, path.Base(at)+servedIn(object))

	return object
}

// list are the objects of a kind, in any namespace where the path has none.
func (a *api) list(at, selector string) any {
	wanted, _ := labels.Parse(selector)
	items := []any{}

	for _, name := range slices.Sorted(maps.Keys(a.objects)) {
		metadata, _ := a.objects[name]["metadata"].(map[string]any)
		found := labels.Set{}

		if values, ok := metadata["labels"].(map[string]any); ok {
			for key, value := range values {
				found[key] = fmt.Sprint(value)
			}
		}

		if path.Base(path.Dir(name)) == path.Base(at) && wanted.Matches(found) {
			items = append(items, a.objects[name])
		}
	}

	if path.Base(at) == "secrets" {
		return map[string]any{"kind": "SecretList", "apiVersion": "v1", "items": items}
	}

	return map[string]any{"kind": "HelmReleaseList", "apiVersion": "helm.toolkit.fluxcd.io/v2", "items": items}
}

// servedIn says which versions a definition serves.
func servedIn(object map[string]any) string {
	spec, _ := object["spec"].(map[string]any)
	versions, _ := spec["versions"].([]any)

	var served []string

	for _, one := range versions {
		if version, _ := one.(map[string]any); version["served"] == true {
			served = append(served, fmt.Sprint(version["name"]))
		}
	}

	if len(versions) == 0 {
		return ""
	}

	return " serves " + strings.Join(served, ", ")
}

// tlsRoute is a definition that has an older version and does not serve it.
const tlsRoute = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: tlsroutes.gateway.networking.k8s.io
  annotations: {gateway.networking.k8s.io/bundle-version: v1.6.1}
spec:
  group: gateway.networking.k8s.io
  versions: [{name: v1, served: true, storage: true}, {name: v1alpha2, served: false, storage: false}]
`

// network is a cluster whose release cilium has revisions, and a request for the next one.
type network struct {
	*testing.T
	*api

	req Release
}

type revision struct {
	version string
	status  common.Status
}

func newNetwork(t *testing.T, wanted string, revisions ...revision) *network {
	t.Helper()

	n := &network{T: t, api: &api{objects: map[string]map[string]any{}}}
	authority := clustertest.NewAuthority(t)
	server := httptest.NewUnstartedServer(n.api)
	server.TLS = authority.ServerTLS(t, "127.0.0.1")
	server.StartTLS()
	t.Cleanup(server.Close)

	folder := t.TempDir()
	file := filepath.Join(folder, "tlsroutes.yaml")
	require.NoError(t, os.WriteFile(file, []byte(tlsRoute), 0o600))

	archive, err := chartutil.Save(chartOf(wanted), folder)
	require.NoError(t, err)

	sum := sha256.Sum256([]byte(tlsRoute))
	n.req = Release{
		Timeout: time.Minute,
		HelmRelease: request.HelmRelease{
			Name: "cilium", Namespace: "kube-system", Chart: archive, Version: wanted,
			Manifests: []request.Manifest{{Source: file, Digest: "sha256:" + hex.EncodeToString(sum[:])}},
		},
		Kubeconfig: authority.Kubeconfig(t, server.URL), Sequential: true,
	}

	r, err := newReleaser(n.req, io.Discard)
	require.NoError(t, err)

	cfg, err := r.helm()
	require.NoError(t, err)

	for i, one := range revisions {
		require.NoError(t, cfg.Releases.Create(&releasev1.Release{
			Name: "cilium", Namespace: "kube-system", Version: i + 1, Chart: chartOf(one.version),
			Info: &releasev1.Info{Status: one.status}, Labels: map[string]string{revisionLabel: fmt.Sprint(i + 1)},
		}))
	}

	n.written = nil

	return n
}

func chartOf(version string) *chart.Chart {
	return &chart.Chart{Metadata: &chart.Metadata{APIVersion: "v2", Name: "cilium", Version: version}}
}

// brings runs the request, and returns what was said.
func (n *network) brings() (said string, err error) {
	n.Helper()

	var progress bytes.Buffer

	r, err := newReleaser(n.req, &progress)
	require.NoError(n, err)

	err = r.run(n.Context())

	return progress.String(), err
}

// ofFlux gives the release to a HelmRelease.
func (n *network) ofFlux() {
	n.objects[helmReleasesPath+"cilium"] = map[string]any{
		"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
		"metadata": map[string]any{"name": "cilium", "namespace": "flux-system"},
		"spec":     map[string]any{"releaseName": "cilium", "storageNamespace": "kube-system"},
	}
}

// TestDefinitionsOfFluxRelease: the definitions are applied although Flux has the release, and while an operator of the
// minor before runs they serve what that asks for.
func TestDefinitionsOfFluxRelease(t *testing.T) {
	t.Parallel()

	n := newNetwork(t, "1.20.2", revision{"1.19.6", common.StatusDeployed})
	n.ofFlux()

	said, err := n.brings()
	require.NoError(t, err)
	assert.Contains(t, said, "release kube-system/cilium is HelmRelease flux-system/cilium's: it is left alone")
	assert.Equal(t, []string{tlsRoutes + " serves v1, v1alpha2"}, n.written)

	n = newNetwork(t, "1.20.2", revision{"1.19.6", common.StatusSuperseded}, revision{"1.20.2", common.StatusDeployed})
	n.ofFlux()

	_, err = n.brings()
	require.NoError(t, err)
	assert.Equal(t, []string{tlsRoutes + " serves v1"}, n.written)
}

// TestDefinitionsOfUpgrade: definitions that both operators bear, the release, the definitions as they are; an upgrade
// that was interrupted goes the same way.
func TestDefinitionsOfUpgrade(t *testing.T) {
	t.Parallel()

	for name, revisions := range map[string][]revision{
		"an upgrade":    {{"1.19.6", common.StatusDeployed}},
		"a resumed one": {{"1.19.6", common.StatusDeployed}, {"1.20.2", common.StatusPendingUpgrade}},
	} {
		n := newNetwork(t, "1.20.2", revisions...)

		_, err := n.brings()
		require.NoError(t, err, name)
		require.NotEmpty(t, n.written, name)
		assert.Equal(t, tlsRoutes+" serves v1, v1alpha2", n.written[0], name)
		assert.Contains(t, n.written, fmt.Sprintf("sh.helm.release.v1.cilium.v%d", len(revisions)+1), name)
		assert.Equal(t, tlsRoutes+" serves v1", n.written[len(n.written)-1], name)
	}
}

// TestDefinitionsThatAreNewer stay: objects may be stored by them, and somebody brought them.
func TestDefinitionsThatAreNewer(t *testing.T) {
	t.Parallel()

	n := newNetwork(t, "1.20.2", revision{"1.20.2", common.StatusDeployed})
	n.ofFlux()
	n.objects[definitionsPath+tlsRoutes] = map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": tlsRoutes, "annotations": map[string]any{bundleVersion: "v1.7.0"}},
	}

	said, err := n.brings()
	require.NoError(t, err)
	assert.Contains(t, said, "is of the Gateway API v1.7.0, newer than v1.6.1: it is left alone")
	assert.Empty(t, n.written)
}

// TestSteps: a step over a minor version, and one back, change nothing.
func TestSteps(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		running, wanted string
		flux            bool
		says            string
	}{
		"over a minor":          {"1.18.12", "1.20.2", false, "1.18.12 runs, and 1.20.2 would skip a minor version, which it does not support: set one of 1.19 first; nothing was changed"},
		"over a minor, by Flux": {"1.18.12", "1.20.2", true, "set one of 1.19 first"},
		"back over a minor":     {"1.20.2", "1.18.12", false, "set one of 1.19 first"},
		"back":                  {"1.20.2", "1.19.6", false, "definitions of custom resources cannot go back to those of 1.19.6: set 1.20.2 or newer; nothing was changed"},
		"a patch":               {"1.20.1", "1.20.2", true, ""},
		"a minor":               {"1.19.6", "1.20.2", true, ""},
	} {
		n := newNetwork(t, test.wanted, revision{test.running, common.StatusDeployed})
		if test.flux {
			n.ofFlux()
		}

		_, err := n.brings()
		if test.says == "" {
			require.NoError(t, err, name)

			continue
		}

		require.ErrorContains(t, err, test.says, name)
		assert.Empty(t, n.written, name)
	}
}
