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

// longhornChart returns a chart with a schema.
func longhornChart() *chart.Chart {
	return &chart.Chart{
		Metadata: &chart.Metadata{APIVersion: "v2", Name: "longhorn", Version: "1.13.0"},
		Raw: []*common.File{{
			Name: "values.yaml", Data: []byte("defaultSettings: {defaultReplicaCount: 3, taintToleration: \"\"}\npersistence: {}\n"),
		}},
		Schema:    []byte(`{"properties": {"persistence": {"properties": {"defaultClass": {"type": "boolean"}}}}}`),
		Templates: []*common.File{{Name: "templates/a.yaml", Data: []byte("a: {{ .Values.extra }}\n")}},
	}
}

// TestCharts: missing versions, and values that a chart ignores or rejects, from an http repository and from a
// registry. Charts that cannot be checked are listed.
func TestCharts(t *testing.T) {
	t.Parallel()

	golden := goldentest.NewCases(t)

	repository := chartstest.Repository(t, longhornChart())
	registry, digests := chartstest.Registry(t, longhornChart())

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

			c := clusterWithRelease(t, test.source, test.chart, test.values)
			unchecked := c.checkCharts(fetchCharts(t.Context(), []*cluster{c}))
			golden.Equal(t, name, names.Replace(strings.Join(slices.Concat(unchecked, c.problems), "\n")))
		})
	}
}

// clusterWithRelease returns a cluster with one release. source is kind|fields; chart is its name and version.
func clusterWithRelease(t *testing.T, source, chart, values string) *cluster {
	t.Helper()

	kind, fields, _ := strings.Cut(source, "|")
	name, version, _ := strings.Cut(chart, " ")
	reference := "{kind: " + kind + ", name: source}"

	from := "chart: {spec: {chart: " + name + ", version: " + version + ", sourceRef: " + reference + "}}"
	if chart == "" {
		from = "chartRef: " + reference
	}

	comp := &component{name: "a", folder: "gitops/a/manifests"}

	for _, text := range []string{
		"{apiVersion: source.toolkit.fluxcd.io/v1, kind: " + kind + ", metadata: {name: source, namespace: flux-system}, spec: {" + fields + "}}",
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: more, namespace: flux-system}, data: {values.yaml: '" + values + "'}}",
		"{apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease, metadata: {name: a, namespace: flux-system}, spec: {" + from +
			", valuesFrom: [{kind: ConfigMap, name: more}], values: {defaultSettings: {defaultReplicaCount: 2}}}}",
	} {
		comp.objects = append(comp.objects, parseObject(t, text))
	}

	return &cluster{folder: "gitops/clusters/a", components: []*component{comp}}
}

// TestChartsAreOptional: the check is offline by default, and reports what it has not checked.
func TestChartsAreOptional(t *testing.T) {
	t.Parallel()

	var output bytes.Buffer

	root := newRoot()
	root.SetArgs([]string{"tree", repository})
	root.SetOut(&output)
	require.NoError(t, root.ExecuteContext(t.Context()))
	assert.Contains(t, output.String(), "components are fine\nnot checked: charts and their values (--charts queries ")
}

func parseObject(t *testing.T, text string) object {
	t.Helper()

	o := &unstructured.Unstructured{}
	content, err := yaml.ToJSON([]byte("---\n" + text)) // without ---, {…} would be parsed as JSON
	require.NoError(t, err)
	require.NoError(t, o.UnmarshalJSON(content))

	return o
}
