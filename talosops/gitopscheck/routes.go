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

// judgeRoutes follows what routes name, those in values of charts included: a listener of a Gateway, and Services. It
// finds wildcard names among those that external-dns publishes.
func (c *cluster) judgeRoutes() {
	for one, o := range c.objects() {
		at := one.at(o)

		if isRelease(o) {
			for _, parent := range withKey(fields(o, "spec", "values"), "parentRefs") {
				c.judgeParents(at, charts.FluxReleaseOf(o).Namespace, parent)
			}

			c.judgePublished(at, o)
		}

		if o.GroupVersionKind().Group != gatewayGroup || !strings.HasSuffix(o.GetKind(), "Route") {
			continue
		}

		spec := fields(o, "spec")
		c.judgeParents(at, o.GetNamespace(), spec)

		for _, rule := range withKey(spec, "backendRefs") {
			c.judgeBackends(at, o.GetNamespace(), rule)
		}
	}
}

// withKey are all maps below a value that have a key.
func withKey(value any, key string) (found []map[string]any) {
	switch value := value.(type) {
	case map[string]any:
		if _, has := value[key]; has {
			found = append(found, value)
		}

		for _, inner := range value {
			found = append(found, withKey(inner, key)...)
		}
	case []any:
		for _, inner := range value {
			found = append(found, withKey(inner, key)...)
		}
	}

	return found
}

// judgeParents follows what a route in a namespace wants to be part of.
func (c *cluster) judgeParents(at, namespace string, route map[string]any) {
	parents, _ := route["parentRefs"].([]any)
	for _, parent := range objectsOf(parents) {
		if kind := text(parent, "Gateway", "kind"); kind != "Gateway" {
			continue
		}

		in, name := text(parent, namespace, "namespace"), text(parent, "", "name")

		gateway := c.find(gatewayGroup, "Gateway", in, name)
		if gateway == nil {
			c.report("%s: it is part of Gateway %s/%s, which the cluster does not have: list the folder that has it, or correct "+
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

// judgeBackends follows the Services of a rule. Those of charts, which are not rendered, have the release's name or
// begin with it.
func (c *cluster) judgeBackends(at, namespace string, rule map[string]any) {
	backends, _ := rule["backendRefs"].([]any)
	for _, backend := range objectsOf(backends) {
		in, name := text(backend, namespace, "namespace"), text(backend, "", "name")
		if text(backend, "Service", "kind") != "Service" || c.find("", "Service", in, name) != nil {
			continue
		}

		if !c.has(func(o object) bool {
			release := charts.FluxReleaseOf(o)

			return isRelease(o) && release.Namespace == in &&
				(name == release.Name || strings.HasPrefix(name, release.Name+"-"))
		}) {
			c.report("%s: nothing makes its Service %s/%s, no release in that namespace either: correct backendRefs", at, in, name)
		}
	}
}

// labelFilter is the argument of external-dns by which it reads routes and Services.
const labelFilter = "--label-filter="

// judgePublished finds wildcard names that external-dns would make records of.
func (c *cluster) judgePublished(at string, release object) {
	if chartOf(release) != "external-dns" {
		return
	}

	reads := labels.Everything()

	arguments, _, _ := unstructured.NestedStringSlice(release.Object, "spec", "values", "extraArgs")
	for _, argument := range arguments {
		if filter, is := strings.CutPrefix(argument, labelFilter); is {
			selector, err := labels.Parse(filter)
			if err != nil {
				c.report("%s: %s is not a selector of labels: %v", at, argument, err)

				return
			}

			reads = selector
		}
	}

	for _, o := range c.objects() {
		if o.GroupVersionKind().Group != gatewayGroup || !reads.Matches(labels.Set(o.GetLabels())) {
			continue
		}

		names, _, _ := unstructured.NestedStringSlice(o.Object, "spec", "hostnames")
		for _, name := range names {
			if strings.HasPrefix(name, "*.") {
				c.report("%s: it would publish %s of %s %s, every name there is below: have it read labelled routes alone "+
					"(values.extraArgs: [%sexternal-dns/publish=true]), and take the label off that one", at, name, o.GetKind(),
					o.GetName(), labelFilter)
			}
		}
	}
}

// addressKeys are annotations by which Cilium gives a Service, or a Gateway's, addresses of its pools.
var addressKeys = []string{"lbipam.cilium.io/ips", "io.cilium/lb-ipam-ips"} //nolint:gochecknoglobals // a table

// judgeAddresses wants the addresses that Gateways and Services ask for to be of the pool.
func (c *cluster) judgeAddresses(planned spec.Cluster) {
	if planned.CNI == nil {
		return
	}

	for one, o := range c.objects() {
		for _, wanted := range addressesOf(o) {
			address, err := netip.ParseAddr(wanted)
			if err != nil || slices.ContainsFunc(planned.CNI.LoadBalancer, func(r spec.AddressRange) bool {
				return r.Holds(address)
			}) {
				continue
			}

			c.report("%s asks for the address %s, which cni.loadBalancer.addresses of cluster %s does not have: add it there, or "+
				"ask for another", one.at(o), wanted, planned.Name)
		}
	}
}

func addressesOf(o object) []string {
	var wanted []string

	infrastructure, _, _ := unstructured.NestedStringMap(o.Object, "spec", "infrastructure", "annotations")
	for _, annotations := range []map[string]string{o.GetAnnotations(), infrastructure} {
		for _, key := range addressKeys {
			for address := range strings.SplitSeq(annotations[key], ",") {
				wanted = append(wanted, strings.TrimSpace(address))
			}
		}
	}

	if o.GetKind() == "Service" {
		wanted = append(wanted, text(o, "", "spec", "loadBalancerIP"))
	}

	if o.GetKind() == "Gateway" {
		for _, one := range items(o, "spec", "addresses") {
			wanted = append(wanted, text(one, "", "value"))
		}
	}

	return slices.DeleteFunc(wanted, func(address string) bool { return address == "" })
}
