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
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/release/common"
	releasev1 "helm.sh/helm/v4/pkg/release/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/clustertest"
)

const (
	definitionsPath  = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"
	helmReleasesPath = "/apis/helm.toolkit.fluxcd.io/v2/namespaces/flux-system/helmreleases/"
	tlsRoutes        = "tlsroutes.gateway.networking.k8s.io"
)

// discoveryAnswers are the responses of the discovery API.
func discoveryAnswers() map[string]any {
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
		"/api": metav1.APIVersions{Versions: []string{"v1"}}, "/apis": groups,
		"/api/v1": resources("v1", metav1.APIResource{Name: "secrets", Kind: "Secret", Namespaced: true}),
		"/apis/apiextensions.k8s.io/v1": resources("apiextensions.k8s.io/v1", metav1.APIResource{
			Name: "customresourcedefinitions", Kind: "CustomResourceDefinition",
		}),
		"/apis/helm.toolkit.fluxcd.io/v2": resources("helm.toolkit.fluxcd.io/v2", metav1.APIResource{
			Name: "helmreleases", Kind: "HelmRelease", Namespaced: true,
		}),
	}
}

// writes returns the names of the written objects in order, definitions with the versions that they serve.
func (n *ciliumCluster) writes() (list []string) {
	for _, w := range n.Writes {
		name := path.Base(w.Path)

		var definition struct {
			Spec struct {
				Versions []struct {
					Name   string
					Served bool
				}
			}
		}
		require.NoError(n, json.Unmarshal([]byte(w.Body), &definition))

		var served []string

		for _, version := range definition.Spec.Versions {
			if version.Served {
				served = append(served, version.Name)
			}
		}

		if len(served) > 0 {
			name += " serves " + strings.Join(served, ", ")
		}

		list = append(list, name)
	}

	return list
}

// tlsRoute is a definition with an older version that it does not serve.
const tlsRoute = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: tlsroutes.gateway.networking.k8s.io
  annotations: {gateway.networking.k8s.io/bundle-version: v1.6.1}
spec:
  group: gateway.networking.k8s.io
  versions: [{name: v1, served: true, storage: true}, {name: v1alpha2, served: false, storage: false}]
`

// ciliumCluster is a cluster with revisions of the release cilium, and a request for the next one.
type ciliumCluster struct {
	*testing.T
	*clustertest.API

	req Release
}

type revision struct {
	version string
	status  common.Status
}

func newCiliumCluster(t *testing.T, wanted string, revisions ...revision) *ciliumCluster {
	t.Helper()

	n := &ciliumCluster{T: t, API: clustertest.NewAPI(nil)}
	maps.Copy(n.Answers, discoveryAnswers())

	served := clustertest.Serve(t, &clustertest.TalosNode{}, n.API)
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
		Kubeconfig: served.Kubeconfig, Endpoints: []netip.Addr{served.Address}, Sequential: true,
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

	n.Writes = nil

	return n
}

func chartOf(version string) *chart.Chart {
	return &chart.Chart{Metadata: &chart.Metadata{APIVersion: "v2", Name: "cilium", Version: version}}
}

// install runs the request, and returns its progress.
func (n *ciliumCluster) install() (output string, err error) {
	n.Helper()

	var progress bytes.Buffer

	r, err := newReleaser(n.req, &progress)
	require.NoError(n, err)

	err = r.run(n.Context())

	return progress.String(), err
}

// giveToFlux adds a HelmRelease that owns the release.
func (n *ciliumCluster) giveToFlux() {
	n.Objects[helmReleasesPath+"cilium"] = map[string]any{
		"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
		"metadata": map[string]any{"name": "cilium", "namespace": "flux-system"},
		"spec":     map[string]any{"releaseName": "cilium", "storageNamespace": "kube-system"},
	}
}

// TestDefinitionsOfFluxRelease: definitions are applied although Flux owns the release, and serve all versions while an
// operator of the previous minor runs.
func TestDefinitionsOfFluxRelease(t *testing.T) {
	t.Parallel()

	n := newCiliumCluster(t, "1.20.2", revision{"1.19.6", common.StatusDeployed})
	n.giveToFlux()

	output, err := n.install()
	require.NoError(t, err)
	assert.Contains(t, output, "release kube-system/cilium is HelmRelease flux-system/cilium's: it is left alone")
	assert.Equal(t, []string{tlsRoutes + " serves v1, v1alpha2"}, n.writes())

	n = newCiliumCluster(t, "1.20.2", revision{"1.19.6", common.StatusSuperseded}, revision{"1.20.2", common.StatusDeployed})
	n.giveToFlux()

	_, err = n.install()
	require.NoError(t, err)
	assert.Equal(t, []string{tlsRoutes + " serves v1"}, n.writes())
}

// TestDefinitionsOfUpgrade: an upgrade applies definitions for both operators, the release, and then the definitions as
// they are. A resumed upgrade does the same.
func TestDefinitionsOfUpgrade(t *testing.T) {
	t.Parallel()

	for name, revisions := range map[string][]revision{
		"an upgrade":    {{"1.19.6", common.StatusDeployed}},
		"a resumed one": {{"1.19.6", common.StatusDeployed}, {"1.20.2", common.StatusPendingUpgrade}},
	} {
		n := newCiliumCluster(t, "1.20.2", revisions...)

		_, err := n.install()
		require.NoError(t, err, name)
		require.NotEmpty(t, n.writes(), name)
		assert.Equal(t, tlsRoutes+" serves v1, v1alpha2", n.writes()[0], name)
		assert.Contains(t, n.writes(), fmt.Sprintf("sh.helm.release.v1.cilium.v%d", len(revisions)+1), name)
		assert.Equal(t, tlsRoutes+" serves v1", n.writes()[len(n.writes())-1], name)
	}
}

// TestDefinitionsThatAreNewer: newer definitions are left alone.
func TestDefinitionsThatAreNewer(t *testing.T) {
	t.Parallel()

	n := newCiliumCluster(t, "1.20.2", revision{"1.20.2", common.StatusDeployed})
	n.giveToFlux()
	n.Objects[definitionsPath+tlsRoutes] = map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": tlsRoutes, "annotations": map[string]any{bundleVersion: "v1.7.0"}},
	}

	output, err := n.install()
	require.NoError(t, err)
	assert.Contains(t, output, "is of the Gateway API v1.7.0, newer than v1.6.1: it is left alone")
	assert.Empty(t, n.writes())
}

// TestVersionSteps: skipping a minor version and a downgrade are refused before anything is changed.
func TestVersionSteps(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		running, wanted string
		flux            bool
		want            string
	}{
		"over a minor":          {"1.18.12", "1.20.2", false, "1.18.12 runs, and 1.20.2 would skip a minor version, which it does not support: set a version of 1.19 first; nothing was changed"},
		"over a minor, by Flux": {"1.18.12", "1.20.2", true, "set a version of 1.19 first"},
		"back over a minor":     {"1.20.2", "1.18.12", false, "set a version of 1.19 first"},
		"back":                  {"1.20.2", "1.19.6", false, "definitions of custom resources cannot go back to those of 1.19.6: set 1.20.2 or newer; nothing was changed"},
		"a patch":               {"1.20.1", "1.20.2", true, ""},
		"a minor":               {"1.19.6", "1.20.2", true, ""},
	} {
		n := newCiliumCluster(t, test.wanted, revision{test.running, common.StatusDeployed})
		if test.flux {
			n.giveToFlux()
		}

		_, err := n.install()
		if test.want == "" {
			require.NoError(t, err, name)

			continue
		}

		require.ErrorContains(t, err, test.want, name)
		assert.Empty(t, n.writes(), name)
	}
}

// TestARefusedSecretIsNotQuoted: an admission webhook may quote the object. The error keeps its type.
func TestARefusedSecretIsNotQuoted(t *testing.T) {
	t.Parallel()

	n := newCiliumCluster(t, "1.20.2")
	n.Refuse = func(_ *http.Request, w clustertest.Write) *metav1.Status {
		if w.Method != http.MethodPatch {
			return nil
		}

		return &metav1.Status{Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: "quotes " + w.Body}
	}

	r, err := newReleaser(n.req, io.Discard)
	require.NoError(t, err)

	versions := map[string]string{"Secret": "v1", "HelmRelease": "helm.toolkit.fluxcd.io/v2"}

	for kind, quoted := range map[string]bool{"Secret": false, "HelmRelease": true} {
		object := &unstructured.Unstructured{Object: fluxObject(versions[kind], kind, "age", "data",
			map[string]string{"age.agekey": "the-secret"})}

		err = r.apply(t.Context(), object)
		require.ErrorContains(t, err, kind+" flux-system/age: ")
		assert.Equal(t, quoted, strings.Contains(err.Error(), "the-secret"), err)
		assert.True(t, apierrors.IsForbidden(err), err)
	}
}
