package main

import (
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"talos-proxmox/internal/spec"
	"talos-proxmox/talosops/charts"
)

const gatewayGroup = "gateway.networking.k8s.io"

// checkRoutes checks that the Gateways, listeners and Services of routes exist, including those in values of charts,
// and finds wildcard names that external-dns would publish.
func (c *cluster) checkRoutes() {
	for comp, o := range c.objects() {
		at := comp.at(o)

		if isRelease(o) {
			for _, parent := range mapsWithKey(fields(o, "spec", "values"), "parentRefs") {
				c.checkParents(at, charts.FluxReleaseOf(o).Namespace, parent)
			}

			c.checkPublishedNames(at, o)
		}

		if o.GroupVersionKind().Group != gatewayGroup || !strings.HasSuffix(o.GetKind(), "Route") {
			continue
		}

		spec := fields(o, "spec")
		c.checkParents(at, o.GetNamespace(), spec)

		for _, rule := range mapsWithKey(spec, "backendRefs") {
			c.checkBackends(at, o.GetNamespace(), rule)
		}
	}
}

// mapsWithKey returns all maps below a value that have a key.
func mapsWithKey(value any, key string) (found []map[string]any) {
	switch value := value.(type) {
	case map[string]any:
		if _, has := value[key]; has {
			found = append(found, value)
		}

		for _, inner := range value {
			found = append(found, mapsWithKey(inner, key)...)
		}
	case []any:
		for _, inner := range value {
			found = append(found, mapsWithKey(inner, key)...)
		}
	}

	return found
}

// checkParents checks the parentRefs of a route in a namespace.
func (c *cluster) checkParents(at, namespace string, route map[string]any) {
	parents, _ := route["parentRefs"].([]any)
	for _, parent := range asObjects(parents) {
		if kind := text(parent, "Gateway", "kind"); kind != "Gateway" {
			continue
		}

		in, name := text(parent, namespace, "namespace"), text(parent, "", "name")

		gateway := c.find(gatewayGroup, "Gateway", in, name)
		if gateway == nil {
			c.report("%s: its parent is Gateway %s/%s, which the cluster does not have: list the folder that has it, or correct "+
				"parentRefs", at, in, name)

			continue
		}

		section := text(parent, "", "sectionName")
		if section != "" && !slices.ContainsFunc(items(gateway, "spec", "listeners"), func(listener object) bool {
			return text(listener, "", "name") == section
		}) {
			c.report("%s: Gateway %s/%s has no listener %s: correct parentRefs[].sectionName", at, in, name, section)
		}
	}
}

// checkBackends checks the Services of a rule. Charts are not rendered: a Service that has a release's name, or begins
// with it, may be the chart's.
func (c *cluster) checkBackends(at, namespace string, rule map[string]any) {
	backends, _ := rule["backendRefs"].([]any)
	for _, backend := range asObjects(backends) {
		in, name := text(backend, namespace, "namespace"), text(backend, "", "name")
		if text(backend, "Service", "kind") != "Service" || c.find("", "Service", in, name) != nil {
			continue
		}

		if !c.has(func(o object) bool {
			release := charts.FluxReleaseOf(o)

			return isRelease(o) && release.Namespace == in &&
				(name == release.Name || strings.HasPrefix(name, release.Name+"-"))
		}) {
			c.report("%s: nothing creates its Service %s/%s, and no release in that namespace could: correct backendRefs", at, in,
				name)
		}
	}
}

// labelFilter is the argument of external-dns that selects routes and Services.
const labelFilter = "--label-filter="

// checkPublishedNames finds wildcard names that external-dns would publish.
func (c *cluster) checkPublishedNames(at string, release object) {
	if chartName(release) != "external-dns" {
		return
	}

	selector := labels.Everything()

	arguments, _, _ := unstructured.NestedStringSlice(release.Object, "spec", "values", "extraArgs")
	for _, argument := range arguments {
		if filter, is := strings.CutPrefix(argument, labelFilter); is {
			parsed, err := labels.Parse(filter)
			if err != nil {
				c.report("%s: %s is not a label selector: %v", at, argument, err)

				return
			}

			selector = parsed
		}
	}

	for _, o := range c.objects() {
		if o.GroupVersionKind().Group != gatewayGroup || !selector.Matches(labels.Set(o.GetLabels())) {
			continue
		}

		names, _, _ := unstructured.NestedStringSlice(o.Object, "spec", "hostnames")
		for _, name := range names {
			if strings.HasPrefix(name, "*.") {
				c.report("%s: it would publish %s of %s %s, and so every name below it: make it read only labelled routes "+
					"(values.extraArgs: [%sexternal-dns/publish=true]), and remove the label from that one", at, name, o.GetKind(),
					o.GetName(), labelFilter)
			}
		}
	}
}

// addressKeys are annotations that request addresses of Cilium's pools for a Service or a Gateway.
var addressKeys = []string{"lbipam.cilium.io/ips", "io.cilium/lb-ipam-ips"} //nolint:gochecknoglobals // a table

// checkAddresses checks that the addresses that Gateways and Services request are in the cluster's pool.
func (c *cluster) checkAddresses(planned spec.Cluster) {
	if planned.CNI == nil {
		return
	}

	for comp, o := range c.objects() {
		for _, requested := range requestedAddresses(o) {
			address, err := netip.ParseAddr(requested)
			if err != nil || slices.ContainsFunc(planned.CNI.LoadBalancer, func(r spec.AddressRange) bool {
				return r.Contains(address)
			}) {
				continue
			}

			c.report("%s requests the address %s, which cni.loadBalancer.addresses of cluster %s does not have: add it there, or "+
				"request another", comp.at(o), requested, planned.Name)
		}
	}
}

func requestedAddresses(o object) []string {
	var addresses []string

	infrastructure, _, _ := unstructured.NestedStringMap(o.Object, "spec", "infrastructure", "annotations")
	for _, annotations := range []map[string]string{o.GetAnnotations(), infrastructure} {
		for _, key := range addressKeys {
			for address := range strings.SplitSeq(annotations[key], ",") {
				addresses = append(addresses, strings.TrimSpace(address))
			}
		}
	}

	if o.GetKind() == "Service" {
		addresses = append(addresses, text(o, "", "spec", "loadBalancerIP"))
	}

	if o.GetKind() == "Gateway" {
		for _, one := range items(o, "spec", "addresses") {
			addresses = append(addresses, text(one, "", "value"))
		}
	}

	return slices.DeleteFunc(addresses, func(address string) bool { return address == "" })
}
