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

// fetcher does not retry: the check can be repeated, and must not block a pipeline.
var fetcher = charts.Fetcher{Timeout: 30 * time.Second, Attempts: 1} //nolint:gochecknoglobals // a constant

const (
	maxDownloads = 16              // downloads
	fetchTimeout = 2 * time.Minute // of all downloads
)

// chartSource identifies the chart of a HelmRelease.
type chartSource struct {
	repository string // URL of an http repository; empty = name is an oci:// address
	name       string // in a repository, or oci://…
	version    string // or the digest of a manifest
}

// chartSource returns the chart that a release installs, or the reason why that cannot be checked.
func (c *cluster) chartSource(release object) (source chartSource, reason string) {
	kind, name, origin := c.sourceOf(release)
	if origin == nil {
		return chartSource{}, "of a source that does not exist"
	}

	address := strings.TrimSuffix(text(origin, "", "spec", "url"), "/")
	version := text(release, "", "spec", "chart", "spec", "version")

	switch {
	case kind == "OCIRepository":
		version = text(origin, text(origin, "", "spec", "ref", "tag"), "spec", "ref", "digest")

		return chartSource{name: address, version: version}, ""
	case kind == "HelmRepository" && strings.HasPrefix(address, "oci://"):
		return chartSource{name: address + "/" + chartName(release), version: version}, ""
	case kind == "HelmRepository":
		return chartSource{address, chartName(release), version}, ""
	default:
		return chartSource{}, "which comes from the " + kind + " " + name
	}
}

// sourceOf returns the source of a HelmRelease's chart; source is nil if the cluster does not have it.
func (c *cluster) sourceOf(release object) (kind, name string, source object) {
	reference := &unstructured.Unstructured{Object: fields(release, "spec", "chartRef")}
	if reference.Object == nil {
		reference.Object = fields(release, "spec", "chart", "spec", "sourceRef")
	}

	kind, name = text(reference, "", "kind"), text(reference, "", "name")

	return kind, name, c.find(sourceGroup, kind, text(reference, release.GetNamespace(), "namespace"), name)
}

// fetchedChart is a downloaded chart, or the error of the download.
type fetchedChart struct {
	chart *chart.Chart
	err   error
}

// fetchCharts downloads the charts that the clusters' releases install, each once.
func fetchCharts(ctx context.Context, clusters []*cluster) map[chartSource]fetchedChart {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()

	fetched := map[chartSource]fetchedChart{}
	indexes := map[string]func() (*charts.Index, error){}

	for _, c := range clusters {
		for _, o := range c.objects() {
			if !isRelease(o) {
				continue
			}

			if source, reason := c.chartSource(o); reason == "" {
				fetched[source] = fetchedChart{}
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

	group.SetLimit(maxDownloads)

	for _, source := range slices.Collect(maps.Keys(fetched)) {
		group.Go(func() error {
			found, err := source.get(ctx, indexes[source.repository])

			mu.Lock()
			defer mu.Unlock()

			fetched[source] = fetchedChart{found, err}

			return nil
		})
	}

	_ = group.Wait() // errors are in fetched

	return fetched
}

func (s chartSource) get(ctx context.Context, index func() (*charts.Index, error)) (*chart.Chart, error) {
	address := s.name

	if s.repository != "" {
		repository, err := index()
		if err != nil {
			return nil, err
		}

		if address, err = repository.Source(s.name, s.version); err != nil {
			return nil, err
		}
	}

	found, _, err := fetcher.Chart(ctx, address, s.version, "")

	return found, err
}

// checkCharts compares releases with the charts that they install, and returns those that it cannot check.
func (c *cluster) checkCharts(fetched map[chartSource]fetchedChart) (unchecked []string) {
	for comp, o := range c.objects() {
		if !isRelease(o) {
			continue
		}

		source, reason := c.chartSource(o)
		if reason == "" && isRefusedOnLoopback(source, fetched[source].err) {
			reason = "of " + cmp.Or(source.repository, source.name) + ", which nothing on this machine serves"
		}

		if reason != "" {
			unchecked = append(unchecked, comp.at(o)+": its chart, "+reason)

			continue
		}

		c.checkChart(comp.at(o), o, source, fetched[source])
	}

	return unchecked
}

// isRefusedOnLoopback reports whether a chart's server is on loopback and does not run, as on any machine but the
// lab's.
func isRefusedOnLoopback(source chartSource, err error) bool {
	address, parseErr := url.Parse(cmp.Or(source.repository, source.name))
	if parseErr != nil || !errors.Is(err, syscall.ECONNREFUSED) {
		return false
	}

	host, err := netip.ParseAddr(address.Hostname())

	return err == nil && host.IsLoopback()
}

func (c *cluster) checkChart(at string, release object, source chartSource, fetched fetchedChart) {
	if fetched.err != nil {
		c.report("%s: its chart %s %s: %v", at, source.name, source.version, fetched.err)

		return
	}

	values, complete := c.values(release)
	label := fmt.Sprintf("%s: the chart %s %s", at, fetched.chart.Name(), fetched.chart.Metadata.Version)
	unknown := charts.UnknownValues(fetched.chart, values)

	for _, value := range unknown {
		c.report("%s would ignore the value %s", label, value)
	}

	if !complete || len(unknown) > 0 { // the schema would repeat the problems, or miss encrypted values
		return
	}

	if err := charts.CheckSchema(fetched.chart, values); err != nil {
		c.report("%s rejects its values: %s", label, strings.TrimSpace(err.Error()))
	}
}

// values returns the values of a release that can be read, and reports whether these are all.
func (c *cluster) values(release object) (values map[string]any, complete bool) {
	values = fields(release, "spec", "values")
	if values == nil {
		values = map[string]any{}
	}

	complete = true

	// The release's own values take precedence, then the last source.
	for _, source := range slices.Backward(items(release, "spec", "valuesFrom")) {
		referenced, err := c.valuesFrom(source, release.GetNamespace())
		complete = complete && err == nil

		charts.Merge(values, referenced)
	}

	return values, complete
}

// valuesFrom reads the values of a ConfigMap or a Secret.
func (c *cluster) valuesFrom(source object, namespace string) (values map[string]any, err error) {
	key := text(source, "values.yaml", "valuesKey")

	o := c.find("", text(source, "", "kind"), namespace, text(source, "", "name"))
	if o == nil || text(source, "", "targetPath") != "" {
		return nil, errors.New("not in the tree, or one value alone")
	}

	content := text(o, text(o, "", "data", key), "stringData", key)

	return values, yaml.Unmarshal([]byte(content), &values)
}
