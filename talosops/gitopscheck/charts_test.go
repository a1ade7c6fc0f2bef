package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"helm.sh/helm/v4/pkg/chart/common"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"talos-proxmox/internal/goldentest"
	"talos-proxmox/talosops/charts/chartstest"
)

// served is a chart with a schema, whose values a release of the tree may set.
func served() *chart.Chart {
	return &chart.Chart{
		Metadata: &chart.Metadata{APIVersion: "v2", Name: "longhorn", Version: "1.13.0"},
		Raw: []*common.File{{
			Name: "values.yaml", Data: []byte("defaultSettings: {defaultReplicaCount: 3, taintToleration: \"\"}\npersistence: {}\n"),
		}},
		Schema:    []byte(`{"properties": {"persistence": {"properties": {"defaultClass": {"type": "boolean"}}}}}`),
		Templates: []*common.File{{Name: "templates/a.yaml", Data: []byte("a: {{ .Values.extra }}\n")}},
	}
}

// TestCharts: a version that a repository does not have, and values that a chart passes over or refuses, each from an
// http repository and from a registry. What cannot be seen is named; nobody waits for what does not answer.
func TestCharts(t *testing.T) {
	t.Parallel()

	golden := goldentest.OfCases(t)

	repository := chartstest.Repository(t, served())
	registry, digests := chartstest.Registry(t, served())

	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()

	broken := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(broken.Close)

	names := strings.NewReplacer(repository, "REPOSITORY", registry, "REGISTRY", closed.URL, "CLOSED", broken.URL, "BROKEN")

	for name, test := range map[string]struct {
		source, chart, values string
	}{
		"what there is": {
			"HelmRepository|url: " + repository,
			"longhorn 1.13.0",
			"{persistence: {defaultClass: false}, extra: 1}",
		},
		"no such version": {"HelmRepository|url: " + repository, "longhorn 1.13.9", "{}"},
		"no such chart":   {"HelmRepository|url: " + repository, "longhornn 1.13.0", "{}"},
		"a misspelt value": {
			"HelmRepository|url: " + repository, "longhorn 1.13.0", "{defaultSettings: {taintTolerations: a}}",
		},
		"a value of another type": {
			"HelmRepository|url: " + repository, "longhorn 1.13.0", `{persistence: {defaultClass: "no"}}`,
		},
		"of a registry, no such version": {
			"HelmRepository|type: oci, url: " + registry, "longhorn 1.13.9", "{}",
		},
		"of a registry, a value that there is not": {
			"OCIRepository|url: " + registry + "/longhorn, ref: {tag: 1.13.0}", "", "{nonsense: 1}",
		},
		"of a registry, by digest": {
			"OCIRepository|url: " + registry + "/longhorn, ref: {digest: \"" + digests[0] + "\"}", "", "{}",
		},
		"of Git":                           {"GitRepository|url: https://git.example.com/a", "charts/a 1.0.0", "{}"},
		"of a lab that does not run":       {"HelmRepository|url: " + closed.URL, "longhorn 1.13.0", "{}"},
		"of a repository without an index": {"HelmRepository|url: " + broken.URL, "longhorn 1.13.0", "{}"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			c := clusterOf(t, test.source, test.chart, test.values)
			unseen := c.judgeCharts(getCharts(t.Context(), []*cluster{c}))
			golden.Equal(t, name, names.Replace(strings.Join(slices.Concat(unseen, c.problems), "\n")))
		})
	}
}

// clusterOf has one release; source is kind|fields, and of is the name and the version of the chart.
func clusterOf(t *testing.T, source, of, values string) *cluster {
	t.Helper()

	kind, fields, _ := strings.Cut(source, "|")
	name, version, _ := strings.Cut(of, " ")
	reference := "{kind: " + kind + ", name: source}"

	from := "chart: {spec: {chart: " + name + ", version: " + version + ", sourceRef: " + reference + "}}"
	if of == "" {
		from = "chartRef: " + reference
	}

	one := &component{name: "a", folder: "gitops/a/manifests"}

	for _, text := range []string{
		"{apiVersion: source.toolkit.fluxcd.io/v1, kind: " + kind + ", metadata: {name: source, namespace: flux-system}, spec: {" + fields + "}}",
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: more, namespace: flux-system}, data: {values.yaml: '" + values + "'}}",
		"{apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease, metadata: {name: a, namespace: flux-system}, spec: {" + from +
			", valuesFrom: [{kind: ConfigMap, name: more}], values: {defaultSettings: {defaultReplicaCount: 2}}}}",
	} {
		one.objects = append(one.objects, parsed(t, text))
	}

	return &cluster{folder: "gitops/clusters/a", components: []*component{one}}
}

// TestChartsAreNotAskedFor: offline is the default, and the check says what it has not done.
func TestChartsAreNotAskedFor(t *testing.T) {
	t.Parallel()

	var said bytes.Buffer

	root := newRoot()
	root.SetArgs([]string{"tree", repository})
	root.SetOut(&said)
	require.NoError(t, root.ExecuteContext(t.Context()))
	assert.Contains(t, said.String(), "components are fine\nnot checked: charts and their values (--charts queries ")
}

func parsed(t *testing.T, text string) object {
	t.Helper()

	o := &unstructured.Unstructured{}
	content, err := yaml.ToJSON([]byte("---\n" + text)) // which begins as JSON does
	require.NoError(t, err)
	require.NoError(t, o.UnmarshalJSON(content))

	return o
}
