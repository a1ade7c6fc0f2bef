package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.yaml.in/yaml/v4"
	"golang.org/x/sync/errgroup"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"talos-proxmox/talosops/charts"
)

// fetcher asks once: who runs the check can run it again, and a pipeline is not to hang.
var fetcher = charts.Fetcher{Timeout: 30 * time.Second, Attempts: 1} //nolint:gochecknoglobals // a constant

const (
	atOnce   = 16              // downloads
	patience = 2 * time.Minute // with all of them
)

// chartSource is a chart as a HelmRelease names it.
type chartSource struct {
	repository string // an http repository's URL; empty = the name is all
	name       string // in a repository, or oci://…
	version    string // or the digest of a manifest
}

// chartOf is what a release installs; unseen says why that is not looked at.
func (c *cluster) chartOf(release object) (source chartSource, unseen string) {
	kind, name, from := c.sourceOf(release)
	if from == nil {
		return chartSource{}, "of a source that is not there"
	}

	address := strings.TrimSuffix(text(from, "", "spec", "url"), "/")
	version := text(release, "", "spec", "chart", "spec", "version")

	switch {
	case kind == "OCIRepository":
		version = text(from, text(from, "", "spec", "ref", "tag"), "spec", "ref", "digest")

		return chartSource{name: address, version: version}, ""
	case kind == "HelmRepository" && strings.HasPrefix(address, "oci://"):
		return chartSource{name: address + "/" + chartOf(release), version: version}, ""
	case kind == "HelmRepository":
		return chartSource{address, chartOf(release), version}, ""
	default:
		return chartSource{}, "which comes from the " + kind + " " + name
	}
}

// sourceOf is where a HelmRelease has its chart from; without an object the cluster does not have that.
func (c *cluster) sourceOf(release object) (kind, name string, from object) {
	reference := &unstructured.Unstructured{Object: fields(release, "spec", "chartRef")}
	if reference.Object == nil {
		reference.Object = fields(release, "spec", "chart", "spec", "sourceRef")
	}

	kind, name = text(reference, "", "kind"), text(reference, "", "name")

	return kind, name, c.find(sourceGroup, kind, text(reference, release.GetNamespace(), "namespace"), name)
}

// gotChart is a chart, or why there is none.
type gotChart struct {
	chart *chart.Chart
	err   error
}

// getCharts asks for what the releases of clusters install, each once.
func getCharts(ctx context.Context, clusters []*cluster) map[chartSource]gotChart {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()

	got := map[chartSource]gotChart{}
	indexes := map[string]func() (*charts.Index, error){}

	for _, c := range clusters {
		for _, o := range c.objects() {
			if !isRelease(o) {
				continue
			}

			if source, unseen := c.chartOf(o); unseen == "" {
				got[source] = gotChart{}
				indexes[source.repository] = sync.OnceValues(func() (*charts.Index, error) {
					return fetcher.Index(ctx, source.repository)
				})
			}
		}
	}

	var (
		group errgroup.Group
		mu    sync.Mutex
	)

	group.SetLimit(atOnce)

	for _, source := range slices.Collect(maps.Keys(got)) {
		group.Go(func() error {
			found, err := source.get(ctx, indexes[source.repository])

			mu.Lock()
			defer mu.Unlock()

			got[source] = gotChart{found, err}

			return nil
		})
	}

	_ = group.Wait() // each error is its chart's

	return got
}

func (s chartSource) get(ctx context.Context, index func() (*charts.Index, error)) (*chart.Chart, error) {
	at := s.name

	if s.repository != "" {
		has, err := index()
		if err != nil {
			return nil, err
		}

		if at, err = has.Source(s.name, s.version); err != nil {
			return nil, err
		}
	}

	found, _, err := fetcher.Chart(ctx, at, s.version, "")

	return found, err
}

// judgeCharts compares releases with the charts that they install, and returns what it has not looked at.
func (c *cluster) judgeCharts(got map[chartSource]gotChart) (unseen []string) {
	for one, o := range c.objects() {
		if !isRelease(o) {
			continue
		}

		source, why := c.chartOf(o)
		if why == "" && nobodyServes(source, got[source].err) {
			why = "of " + cmp.Or(source.repository, source.name) + ", which nothing on this machine serves"
		}

		if why != "" {
			unseen = append(unseen, one.at(o)+": its chart, "+why)

			continue
		}

		c.judgeChart(one.at(o), o, source, got[source])
	}

	return unseen
}

// nobodyServes says whether a chart would be on loopback, where another machine's check cannot find it.
func nobodyServes(source chartSource, err error) bool {
	address, parseErr := url.Parse(cmp.Or(source.repository, source.name))
	if parseErr != nil || !errors.Is(err, syscall.ECONNREFUSED) {
		return false
	}

	host, err := netip.ParseAddr(address.Hostname())

	return err == nil && host.IsLoopback()
}

func (c *cluster) judgeChart(at string, release object, source chartSource, got gotChart) {
	if got.err != nil {
		c.report("%s: its chart %s %s: %v", at, source.name, source.version, got.err)

		return
	}

	values, whole := c.values(release)
	what := fmt.Sprintf("%s: the chart %s %s", at, got.chart.Name(), got.chart.Metadata.Version)
	unknown := charts.UnknownValues(got.chart, values)

	for _, value := range unknown {
		c.report("%s would ignore the value %s", what, value)
	}

	if !whole || len(unknown) > 0 { // a schema would say the same again, or miss what is encrypted
		return
	}

	if err := charts.CheckSchema(got.chart, values); err != nil {
		c.report("%s does not take its values: %s", what, strings.TrimSpace(err.Error()))
	}
}

// values are those of a release, as far as they can be read; whole says whether that is all of them.
func (c *cluster) values(release object) (values map[string]any, whole bool) {
	values = fields(release, "spec", "values")
	if values == nil {
		values = map[string]any{}
	}

	whole = true

	// The last wins, and the release's own over all of them.
	for _, source := range slices.Backward(items(release, "spec", "valuesFrom")) {
		more, err := c.valuesOf(source, release.GetNamespace())
		whole = whole && err == nil

		charts.Merge(values, more)
	}

	return values, whole
}

// valuesOf reads the values of a ConfigMap or a Secret.
func (c *cluster) valuesOf(source object, namespace string) (values map[string]any, err error) {
	key := text(source, "values.yaml", "valuesKey")

	o := c.find("", text(source, "", "kind"), namespace, text(source, "", "name"))
	if o == nil || text(source, "", "targetPath") != "" {
		return nil, errors.New("not in the tree, or one value alone")
	}

	content := text(o, text(o, "", "data", key), "stringData", key)

	return values, yaml.Unmarshal([]byte(content), &values)
}
